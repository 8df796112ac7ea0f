"""`datalens audit`: attack a method on the owner's records, on this machine, before anything is released."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from datalens_service.base.errors import InvalidSpec
from datalens_service.cli import options, output
from datalens_service.cli.new_file import check_free, private_file
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.specs import MethodOptions, ReadingOptions, SpecOptions, build_choices

if TYPE_CHECKING:
    from datalens_service.audits.audit import AuditResult, Train
    from datalens_service.audits.inversion_figures import InversionFigures
    from datalens_service.audits.membership import MembershipFigures
    from datalens_service.audits.reconstruction import Reconstruction
    from datalens_service.audits.subgroups import GroupFigures
    from datalens_service.data.dataset import Dataset, Upload
    from datalens_service.spec import TrainingSpec

PRIVATE_READS = ("attacks",)

FIELDS = ("attack", "AUC", "95 %", "allowed", "found at 1 % false", "allowed")
GROUP_FIELDS = ("loss threshold in", "success", "95 %")
INVERSION_FIELDS = ("inversion of", "median error", "95 %", "lowest")
ATTACKS_HELP = (
    "loss_threshold, reference, likelihood_ratio, or inversion of gradients (dp_sgd, or without privacy); default: the "
    "first three. Repeatable."
)
GROUPS_HELP = "NAME=CLASS,CLASS: measure the success of a loss threshold on these classes together. Repeatable."


def audit(
    data: options.Data,
    rehearsed: MethodOptions,
    attacks: Annotated[list[str] | None, typer.Option("--attack", help=ATTACKS_HELP)] = None,
    references: Annotated[
        int, typer.Option("--references", parser=build_integer_parser(2), help="Models that never saw the candidates.")
    ] = 8,
    groups: Annotated[list[str] | None, typer.Option("--group", help=GROUPS_HELP)] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="PNG that inversion writes; it shows some of your records.", dir_okay=False),
    ] = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    *,
    reading: ReadingOptions,
    as_json: options.AsJson = False,
) -> None:
    """Attack a method on your records and say what the attacks reached. For you alone: do not pass it on.

    A rehearsal: a quarter of the units trains a model of this method and ε, another quarter is held out, and attacks
    try to tell the two apart. Nothing is charged and no model is written, because nothing leaves this machine.
    """
    from datalens_service.audits.attacks import MEMBERSHIP
    from datalens_service.audits.reconstruction import NO_MODEL
    from datalens_service.audits.subgroups import check_groups
    from datalens_service.data import read_upload

    if picture is not None:
        if "inversion" not in (attacks or ()):
            raise InvalidSpec("--picture needs --attack inversion.")
        check_free(picture, force=force)
    upload = read_upload(data, build_choices(vars(reading)))
    spec = SpecOptions(**vars(rehearsed), seed=seed, evaluation=False).build_spec(upload.schema)
    # The parts are smaller than the whole; δ stays that of the job which is rehearsed.
    spec = spec.model_copy(update={"delta": spec.delta_at(upload.schema)})
    dataset, chosen = _prepare(upload), _check(attacks)
    members = tuple(name for name in chosen if name in MEMBERSHIP)
    named = parse_groups(groups)
    check_groups(dataset.schema.class_names, named)
    result = _rehearse(dataset, spec, members, references, named) if members else NO_MODEL
    if len(members) < len(chosen):
        inverted = _invert(dataset, spec)
        result = result.model_copy(update={"inversion": inverted.figures})
        if picture is not None:
            with private_file(picture, force=force) as path:
                path.write_bytes(inverted.picture)
    output.show(result, format_result(result), as_json=as_json)
    output.say(f"{say_notes(result)} These figures depend on your records: do not pass them on.")


def _prepare(upload: Upload) -> Dataset:
    import secrets

    from datalens_service.data.dataset import Dataset

    return Dataset(upload.schema, upload.train, None, secrets.token_bytes(32))


def _check(attacks: list[str] | None) -> list[str]:
    """Names in the registry; without any, all attacks on membership."""
    from datalens_service.audits.attacks import ATTACKS, MEMBERSHIP

    unknown = sorted(set(attacks or ()) - set(ATTACKS))
    if unknown:
        raise InvalidSpec(f"There is no attack named {unknown[0]}: choose among {', '.join(ATTACKS)}.")
    return attacks or list(MEMBERSHIP)


def parse_groups(given: list[str] | None) -> dict[str, tuple[str, ...]]:
    """Classes by the name of a group, from NAME=CLASS,CLASS.

    Raises:
        InvalidSpec: Another form.
    """
    groups = {}
    for text in given or ():
        name, separator, classes = text.partition("=")
        if not (name and separator and classes):
            raise InvalidSpec(f"--group is NAME=CLASS,CLASS, not {text!r}.")
        groups[name] = tuple(classes.split(","))
    return groups


def _rehearse(
    dataset: Dataset, spec: TrainingSpec, attacks: tuple[str, ...], references: int, groups: dict[str, tuple[str, ...]]
) -> AuditResult:
    from datalens_service.audits.audit import AuditSettings
    from datalens_service.audits.targets import rehearse
    from datalens_service.privacy.accounting import mu_of_ledger_units

    chosen = AuditSettings(attacks=attacks, references=references, groups=groups, seed=spec.seed)
    mu = mu_of_ledger_units(spec.limit_units(dataset.schema))
    return rehearse(dataset, _trainer(spec), mu, chosen)


def _invert(dataset: Dataset, spec: TrainingSpec) -> Reconstruction:
    from datalens_service.audits.reconstruction import check_invertible, invert_records
    from datalens_service.audits.request import InversionEffort
    from datalens_service.methods import DpSgd

    check_invertible(dataset.schema, spec.method)
    method = spec.method if isinstance(spec.method, DpSgd) else None
    effort = InversionEffort()
    return invert_records(dataset, method, spec.plan(dataset.schema), effort.records, effort.settings(spec.seed))


def _trainer(spec: TrainingSpec) -> Train:
    from datalens_service.privacy.budget import UnchargedAccount
    from datalens_service.training import run

    def train(part: Dataset, seed: int) -> Any:
        return run(spec.model_copy(update={"seed": seed}), part, account=UnchargedAccount()).model

    return train


def format_result(result: AuditResult) -> Text:
    """Tables of what was found."""
    attacks = [_format_attack(attack.attack, attack.figures) for attack in result.attacks]
    tables = [output.format_table(FIELDS, attacks)] if attacks else []
    if result.groups:
        tables.append(output.format_table(GROUP_FIELDS, [_format_group(group) for group in result.groups]))
    if result.inversion is not None:
        tables.append(output.format_table(INVERSION_FIELDS, _format_inversion(result.inversion)))
    return Text("\n\n").join(tables)


def say_notes(result: AuditResult) -> str:
    """Explain what the figures of an audit mean, and what they do not mean."""
    notes = [*result.verdicts(), *([result.note] if result.attacks else [])]
    return " ".join(notes if result.inversion is None else [*notes, result.inversion.note])


def _format_attack(name: str, figures: MembershipFigures) -> tuple[str, ...]:
    point = figures.operating_points[0]
    return (
        name,
        f"{figures.auc:.3f}",
        "{:.3f} to {:.3f}".format(*figures.interval),
        "1.000" if figures.auc_allowed is None else f"{figures.auc_allowed:.3f}",
        f"{100 * point.true_positive_rate:.1f} %",
        "100.0 %" if point.allowed is None else f"{100 * point.allowed:.1f} %",
    )


def _format_group(figures: GroupFigures) -> tuple[str, ...]:
    low, high = (100 * end for end in figures.interval)
    return figures.group, f"{100 * figures.success:.1f} %", f"{low:.1f} to {high:.1f}"


def _format_inversion(figures: InversionFigures) -> list[tuple[str, ...]]:
    rows = {"raw gradients": figures.raw, f"gradients with noise {figures.noise}": figures.released}
    return [
        (name, f"{errors.median:.3f}", "{:.3f} to {:.3f}".format(*errors.interval), f"{errors.lowest:.3f}")
        for name, errors in rows.items()
        if errors is not None
    ]
