"""The report as one HTML page that needs nothing else: style, drawings and pictures are inside.

A page is rendered from a view (`owner_view` or `releasable_view`) and pictures of released images, never from the
report itself: what the view leaves out cannot appear.
"""

import json
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from datalens_service.base.parsing import spell_number
from datalens_service.evaluation.measures import written
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.metrics.fidelity import EXTRACTOR_TITLES
from datalens_service.evaluation.settings import ExtractorKind
from datalens_service.privacy.guarantee import report_guarantee, right_guesses
from datalens_service.report.attacks import AttackFinding, roc_curve
from datalens_service.report.charts import (
    Bar,
    MetricBars,
    Spent,
    accuracy_bars,
    epsilon_delta_curve,
    epsilon_over_releases,
    metric_bars,
)
from datalens_service.report.pictures import Pictures, neighbour_gallery, sample_gallery
from datalens_service.report.privacy_statement import Tier

# Columns of the table of releases; whatever else describes a mechanism is listed below its name.
_COLUMNS: Final = frozenset(
    {"mechanism", "name", "count", "noise_stddev", "sensitivity_squared", "units_zero_out", "units_replace_one"}
    | {"units_zero_out_total", "units_replace_one_total"}
)
_HINTS: Final = {"lower": "lower is closer", "higher": "higher is better"}


def page(view: dict[str, Any], pictures: Pictures | None) -> str:
    """Render the page of a view, which states the same as its JSON."""
    # Every drawing escapes its own texts.
    drawings = {name: Markup(svg) for name, svg in _drawings(view, pictures).items()}  # noqa: S704
    return _TEMPLATE.render(
        view={"attacks": None, "public_images": False, "confusion": None, "individual_epsilon": None, **view},
        privacy=view["privacy"],
        guarantee=report_guarantee(view["privacy"]),
        schema=view["dataset"]["public_schema"],
        drawings=drawings,
        utility=[measure for measure in view["measures"] if _extractor(measure) is None],
        fidelity=_by_extractor(view["measures"]),
        extractors=EXTRACTOR_TITLES,
    )


def _drawings(view: dict[str, Any], pictures: Pictures | None) -> dict[str, str]:
    privacy = view["privacy"]
    headline, delta = privacy["headline"], privacy["delta"]
    point = headline["points"][0]
    path = [Spent(step["releases"], step["epsilon"]) for step in privacy["spend"]]
    drawings = {
        "bars": accuracy_bars(_accuracies(view["measures"])),
        "curve": epsilon_delta_curve(
            headline["mu"], point["epsilon"], point["delta"], headline.get("slack", 0) / 10**18
        ),
        "spend": epsilon_over_releases(path, privacy["epsilon_limit"], delta),
    }
    for extractor, measures in _by_extractor(view["measures"]).items():
        title = f"Fidelity under the {EXTRACTOR_TITLES[extractor]}"
        drawings[extractor] = metric_bars(f"fidelity-{extractor}", title, [_metric(one) for one in measures])
    findings = [AttackFinding.model_validate(one) for one in (view.get("attacks") or {"findings": []})["findings"]]
    if findings:
        strongest = max(findings, key=lambda one: one.auc)
        drawings["attacks"] = roc_curve("attacks", strongest.attack, strongest.curve)
    if pictures is not None:
        names = view["dataset"]["public_schema"]["class_names"]
        drawings["samples"] = sample_gallery(pictures, names)
        drawings["neighbours"] = neighbour_gallery(pictures, names)
    return drawings


def _accuracies(measures: list[dict[str, Any]]) -> list[Bar]:
    return [
        Bar(measure["title"], measure["value"], measure["spread"], METRICS[measure["name"]].family or "accuracy")
        for measure in measures
        if measure["unit"] == "percent" and measure["basis"] is None
    ]


def _by_extractor(measures: list[dict[str, Any]]) -> dict[ExtractorKind, list[dict[str, Any]]]:
    """Group fidelity figures by extractor, whose scales have nothing to do with each other."""
    groups = {kind: [one for one in measures if _extractor(one) == kind] for kind in EXTRACTOR_TITLES}
    return {kind: group for kind, group in groups.items() if group}


def _extractor(measure: dict[str, Any]) -> str | None:
    """Return the extractor of a fidelity figure; None for all others."""
    variant = METRICS[measure["name"]].variant
    return variant if measure["basis"] is not None and variant in EXTRACTOR_TITLES else None


def _metric(measure: dict[str, Any]) -> MetricBars:
    rows = {
        "these images": (measure["value"], "accuracy"),
        "class averages": (measure["floor"], "floor"),
        "other real images": (measure["ceiling"], "ceiling"),
    }
    compared = [(label, value, kind) for label, (value, kind) in rows.items() if value is not None]
    return MetricBars(
        title=measure["title"].partition(",")[0],
        hint=_HINTS[METRICS[measure["name"]].better],
        rows=tuple(Bar(label, value, None, kind) for label, value, kind in compared),
        values=tuple(written(value, measure["unit"]) for _, value, _ in compared),
    )


def _parameters(mechanism: dict[str, Any]) -> str:
    """Join the parameters that the table has no column for."""
    return ", ".join(f"{key} {value}" for key, value in mechanism.items() if key not in _COLUMNS)


def _tier_number(tier: Tier) -> str:
    return tier.removeprefix("tier_")


def _grouped(fraction: str) -> str:
    """Separate the thousands of a whole number; a fraction stays as it is."""
    return f"{int(fraction):,}" if fraction.isdigit() else fraction


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def read_template(name: str) -> Template:
    """Compile a template of this folder, with what pages of reports write alike."""
    environment = Environment(
        loader=PackageLoader("datalens_service.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=spell_number,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(right_guesses=right_guesses, written=written)
    environment.filters.update(tier_number=_tier_number, parameters=_parameters, grouped=_grouped, pretty=_pretty)
    return environment.get_template(f"{name}.html.j2")


# Compiled once, before a process of a job is forked: it takes longer than all of a small report.
_TEMPLATE: Final = read_template("report")
