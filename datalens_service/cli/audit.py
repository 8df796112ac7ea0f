"""`datalens audit`: attack a method on the owner's records, on this machine, before anything is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datalens_service.cli import options, output
from datalens_service.cli.numbers import build_integer_parser
from datalens_service.cli.specs import SpecOptions, build_unit_declaration, parse_class_names
from datalens_service.errors import InvalidSpec

if TYPE_CHECKING:
    from datalens_service.audits.audit import AuditResult, Train
    from datalens_service.audits.membership import MembershipFigures
    from datalens_service.data.dataset import Dataset
    from datalens_service.data.readers.base import Upload
    from datalens_service.spec import TrainingSpec

FIELDS = ("attack", "AUC", "95 %", "allowed", "found at 1 % false", "allowed")


def audit(
    data: options.Data,
    epsilon: options.Epsilon,
    delta: options.Delta = None,
    method: options.MethodName = None,
    preset: options.PresetName = None,
    purpose: options.Purpose = options.PurposeName.LOOK,
    settings: options.Settings = None,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", help="loss_threshold, reference or likelihood_ratio; all if left out. Repeatable."),
    ] = None,
    references: Annotated[
        int, typer.Option("--references", parser=build_integer_parser(2), help="Models that never saw the candidates.")
    ] = 8,
    seed: options.Seed = 0,
    classes: options.Classes = None,
    records_per_unit: options.RecordsPerUnit = None,
    classes_per_unit: options.ClassesPerUnit = None,
    unit: options.Unit = None,
    as_json: options.AsJson = False,
) -> None:
    """Attack a method on your records and say what the attacks reached. For you alone: do not pass it on.

    A rehearsal: a quarter of the units trains a model of this method and ε, another quarter is held out, and attacks
    try to tell the two apart. Nothing is charged and no model is written, because nothing leaves this machine.
    """
    from datalens_service.data import read_with_notices

    units = build_unit_declaration(records_per_unit, classes_per_unit, unit)
    upload, _ = read_with_notices(data, class_names=parse_class_names(classes), units=units)
    request = SpecOptions(epsilon, delta, method, preset, settings or (), seed, evaluate=False, purpose=purpose.value)
    spec = request.build_spec(upload.schema)
    # The parts are smaller than the whole; δ stays that of the job which is rehearsed.
    spec = spec.model_copy(update={"delta": spec.delta_at(upload.schema)})
    result = _rehearse(_prepare(upload), spec, attacks, references)
    output.show(result, output.format_table(FIELDS, format_attacks(result)), as_json=as_json)
    output.say(result.note + " These figures depend on your records: do not pass them on.")


def _prepare(upload: Upload) -> Dataset:
    import secrets

    from datalens_service.data.dataset import Dataset

    return Dataset(upload.schema, upload.train, None, secrets.token_bytes(32))


def _rehearse(dataset: Dataset, spec: TrainingSpec, attacks: list[str] | None, references: int) -> AuditResult:
    from datalens_service.audits.attacks import ATTACKS
    from datalens_service.audits.audit import AuditSettings
    from datalens_service.audits.rehearsal import rehearse
    from datalens_service.privacy.accounting import mu_of_units

    unknown = sorted(set(attacks or ()) - set(ATTACKS))
    if unknown:
        raise InvalidSpec(f"There is no attack named {unknown[0]}: choose among {', '.join(ATTACKS)}.")
    chosen = AuditSettings(attacks=tuple(attacks or ATTACKS), references=references, seed=spec.seed)
    mu = mu_of_units(spec.limit_units(dataset.schema))
    return rehearse(dataset, _trainer(spec), mu, chosen)


def _trainer(spec: TrainingSpec) -> Train:
    from datalens_service.privacy.budget import UnchargedAccount
    from datalens_service.run import run

    def train(part: Dataset, seed: int) -> Any:
        return run(spec.model_copy(update={"seed": seed}), part, account=UnchargedAccount()).model

    return train


def format_attacks(result: AuditResult) -> list[tuple[str, ...]]:
    """A row for each attack."""
    return [_format_attack(attack.attack, attack.figures) for attack in result.attacks]


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
