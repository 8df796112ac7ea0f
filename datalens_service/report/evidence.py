"""The evidence file: questions that documents ask of a signer, and the answers of the report of a job.

It is rendered from a view of the report alone, as its page is, so what the view leaves out cannot appear. It gives
no verdict.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from datalens_service.base.parsing import spell_number
from datalens_service.privacy.guarantee import PrivacyUnit, report_guarantee, right_guesses
from datalens_service.report.frameworks import FRAMEWORKS
from datalens_service.report.html import read_template

View = Mapping[str, Any]


def evidence_page(view: View) -> str:
    """Render the evidence file of a view of a report."""
    used = [field for field in ANSWERS if any(field in one.fields for of in FRAMEWORKS for one in of.questions)]
    titles = {entry["field"]: entry["title"] for entry in view["index"]}
    return _TEMPLATE.render(
        view=view,
        guarantee=report_guarantee(view["privacy"]),
        frameworks=FRAMEWORKS,
        fields=[(field, titles[field], ANSWERS[field](view)) for field in used],
        anonymity=view.get("anonymity"),
        owner=view["view"] == "owner",
    )


def _product(view: View) -> str:
    product, dataset = view["product"], view["dataset"]
    commit = f", commit {product['commit']}" if product["commit"] else ""
    return f"{product['name']} {product['version']}{commit}; data set {dataset['id'] or 'not named'}."


def _protected(view: View) -> PrivacyUnit:
    privacy = view["privacy"]
    return PrivacyUnit(privacy["unit"], privacy["records_per_unit"])


def _unit(view: View) -> str:
    privacy = view["privacy"]
    most = privacy["records_per_unit"]
    images = "" if most == 1 else f", with at most {most} images each"
    return f"One {_protected(view).word}{images}, declared by the {privacy['unit_declared_by']}."


def _relations(view: View) -> str:
    privacy = view["privacy"]
    return f"Headline: {privacy['headline']['meaning']}. Also stated: {privacy['replace_one']['meaning']}."


def _schema(view: View) -> str:
    schema = view["dataset"]["public_schema"]
    channels = f"{schema['channels']} channel{'' if schema['channels'] == 1 else 's'}"
    units = _protected(view).write_count(schema["num_units"])
    return (
        f"{units}; each image has {schema['width']} by {schema['height']} pixels with {channels}; "
        f"{len(schema['class_names'])} classes."
    )


def _epsilons(view: View) -> str:
    privacy = view["privacy"]
    stated = [
        f"{name}: "
        + ", ".join(
            f"ε = {spell_number(point['epsilon'])} at δ = {spell_number(point['delta'])}" for point in part["points"]
        )
        for name, part in (("zero-out", privacy["headline"]), ("replace-one", privacy["replace_one"]))
    ]
    return "; ".join(stated) + "."


def _tier(view: View) -> str:
    privacy = view["privacy"]
    return f"n · δ = {privacy['delta_times_units']}. {privacy['tier_meaning']}"


def _attack_bound(view: View) -> str:
    privacy = view["privacy"]
    headline = privacy["headline"]
    found = f"{100 * headline['true_positive_rate_at_0_1_percent']:.2f}"
    return (
        f"Whether one {_protected(view).word} was used is guessed right in at most "
        f"{right_guesses(headline['membership_advantage'])} of 100 cases where both are equally likely; a coin is "
        f"right in 50. Whoever accuses 1 in 1,000 outsiders falsely finds at most {found} % of those "
        "who took part."
    )


def _mechanisms(view: View) -> str:
    parts = [f"{one['count']:,} × {one['mechanism']} ({one['name']})" for one in view["privacy"]["mechanisms"]]
    return f"Method {view['method']['name']}: {'; '.join(parts)}."


def _accountant(view: View) -> str:
    checked = view["privacy"]["recomputation"]
    second = {True: "agrees", False: "does not agree", None: "could not be had"}[checked["agrees"]]
    return f"{view['privacy']['accountant']} Second opinion, {checked['by']}: {second}."


def _assumptions(view: View) -> str:
    assumed = view["privacy"]["assumptions"]
    open_ones = [f"{one['assumption']} {one['how']}" for one in assumed if not one["realised"]]
    held = f"{len(assumed) - len(open_ones)} of {len(assumed)} assumptions hold by construction."
    return f"{held} Not by construction: {' '.join(open_ones)}" if open_ones else held


def _accesses(view: View) -> str:
    return "; ".join(f"{one['access']}: {one['status']}" for one in view["privacy"]["data_accesses"]) + "."


def _scope(view: View) -> str:
    scope = view["privacy"]["scope"]
    return f"Released: {' '.join(scope['released'])} Never released: {' '.join(scope['never_released'])}"


def _lifetime(view: View) -> str:
    lifetime = view["privacy"]["lifetime"]
    if lifetime is None:
        return str(view["privacy"]["lifetime_note"])
    limit, delta, spent, remaining = (spell_number(lifetime[name]) for name in ("limit", "delta", "spent", "remaining"))
    return f"Of a lifetime budget of ε = {limit} at δ = {delta}, {spent} are spent and {remaining} remain."


def _links(view: View) -> str:
    linked = view["privacy"]["linked_datasets"]
    if linked is None:
        return str(view["privacy"]["linked_note"])
    return f"Linked data sets: {', '.join(linked)}." if linked else "No linked data set is known to this service."


def _public_data(view: View) -> str:
    return str(view["privacy"]["public_data"]["provenance"])


def _audit(view: View) -> str:
    privacy = view["privacy"]
    return f"{privacy['evidence']} {privacy['audit']['note']}"


def _contact(view: View) -> str:
    contact = view["contact"] or "No contact was named."
    return f"{contact} Report of {view['date']}, sealed with SHA-256 {view['seal']['sha256']}."


ANSWERS: Final[Mapping[str, Callable[[View], str]]] = {
    "F1": _product,
    "F2": lambda view: str(view["privacy"]["setting"]),
    "F3": _unit,
    "F4": _relations,
    "F5": _schema,
    "F6": lambda view: (
        f"μ = {view['privacy']['headline']['mu']}, {view['privacy']['headline']['units']:,} units of 1e-15."
    ),
    "F7": _epsilons,
    "F8": _tier,
    "F9": _attack_bound,
    "F10": _mechanisms,
    "F11": lambda view: str(view["privacy"]["noise"]),
    "F12": _accountant,
    "F13": _assumptions,
    "F14": _accesses,
    "F15": _scope,
    "F16": _lifetime,
    "F17": _links,
    "F18": lambda view: str(view["privacy"]["policy"]["rule"]),
    "F19": _public_data,
    "F20": lambda view: str(view["privacy"]["hyperparameters"]["origin"]),
    "F21": lambda view: " ".join(view["usefulness"]),
    "F22": lambda view: " ".join(view["privacy"]["caveats"]),
    "F23": _audit,
    "F24": lambda view: " ".join(view["privacy"]["limits"]),
    "F25": lambda view: str(view["privacy"]["retention"]),
    "F26": _contact,
}
"""Functions that put what a report says under each of its fields into a sentence or two."""


_TEMPLATE: Final = read_template("evidence")
