"""`datalens plan`: what a budget pays for, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datalens_service.base.clock import duration
from datalens_service.base.errors import InvalidSpec
from datalens_service.cli import options, output
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.public_file import PublicFile
from datalens_service.cli.specs import PlanOptions, ReadingOptions, SpecOptions, build_choices

if TYPE_CHECKING:
    from datalens_service.data.dataset import Schema
    from datalens_service.data.intake.reading_choices import ReadingChoices
    from datalens_service.planning.target import ForecastPlan
    from datalens_service.spec import TrainingSpec, VoteAllowance

PRIVATE_READS = ("reading the upload",)

USUAL_EPSILON: Final = 1.0
"""The ε at which a wanted accuracy is looked for."""
_TOLD_SECONDS: Final = 0.5
_BEST: Final = " (best for labels)"


def plan(
    *,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Images as for `datalens train`; only their public schema is used.", exists=True),
    ] = None,
    planned: PlanOptions,
    accuracy: options.Accuracy = None,
    public_data: Annotated[
        Path | None,
        typer.Option("--public-data", help="Public images of the same size. {public_use}", exists=True),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", parser=build_integer_parser(1), help="k of a vote, if there is no --data.")
    ] = None,
    noise_stddev: Annotated[
        int | None,
        typer.Option("--noise-stddev", parser=build_integer_parser(1), help="σ of a vote sum, if there is no --data."),
    ] = None,
    reading: ReadingOptions,
    as_json: options.AsJson = False,
) -> None:
    """Say what a budget pays for and what it costs; nothing runs and nothing is charged.

    With --top-k and --noise-stddev: how many images DataLens teachers may vote on. With --data: the whole plan of a
    method or preset on that data set. With --accuracy as well: the least ε that is expected to reach it.
    """
    if planned.epsilon is None and (accuracy is None or data is None):
        raise typer.BadParameter("Name it, or --data and the --accuracy that is wanted.", param_hint="--epsilon")
    spec_options = SpecOptions(**{**vars(planned), "epsilon": planned.epsilon or USUAL_EPSILON}).with_encoders(
        _read_encoder
    )
    if data is None:
        allowance = _compute_allowance(spec_options, top_k, noise_stddev)
        output.show(allowance, output.format_facts(_describe_allowance(allowance)), as_json=as_json)
        return
    if top_k is not None or noise_stddev is not None:
        raise InvalidSpec("With --data, name parameters by --set, for example --set top_k=200.")
    schema = _read_schema(data, build_choices(vars(reading)))
    if public_data is not None:
        spec_options = PublicFile.read(public_data, None).check(schema, spec_options)
    summary = _price_plan(spec_options, schema, accuracy, follow=planned.epsilon is None)
    priced = summary.model_dump()
    output.show(summary, output.format_facts(describe_forecast(priced) | describe_plan(priced)), as_json=as_json)


def describe_forecast(plan: dict[str, Any]) -> dict[str, object]:
    """The lines about what is expected of a planned job, its risk and its time.

    Args:
        plan: A plan with its cost as JSON; an older service has no expectation.
    """
    wanted = plan.get("target")
    facts: dict[str, object] = {"wanted accuracy": wanted["sentence"]} if wanted else {}
    return facts | describe_expectation(plan)


def describe_plan(price: dict[str, Any]) -> dict[str, object]:
    """The lines a person reads about a plan."""
    most = "at most " if any("branch" in release for release in price["releases"]) else ""
    facts = {
        "method": price["method"],
        **({"images voted on": f"{price['images']:,}"} if price["images"] else {}),
        "releases": f"{most}{price['steps']:,}",
        "μ": price["mu"],
        "ε planned": f"{most}{price['epsilon_at_plan']} of {price['epsilon_limit']} allowed",
        "ε if one unit is replaced": price["epsilon_replace_one"],
        "δ": price["delta"],
        **({"guarantee": price["guarantee"]} if price.get("guarantee") else {}),
    }
    facts |= _describe_sampling(price["sampling"]) if price.get("sampling") else {}
    facts |= {"looks": price["rationale"]} if price.get("rationale") else {}
    kept = price.get("kept_bytes", 0)
    facts |= {"iterates that are kept": f"{kept / 2**20:,.1f} MiB"} if kept else {}
    return facts | ({"warning": " ".join(price["warnings"])} if price["warnings"] else {})


def describe_expectation(plan: dict[str, Any]) -> dict[str, object]:
    """The lines about what jobs like a planned one reached, and what other methods would.

    Args:
        plan: Members `expectation` and `comparison` of a plan as JSON; an older service has neither.
    """
    expected, compared = plan.get("expectation"), plan.get("comparison")
    if expected is None:
        return {}
    cost = plan.get("cost", plan)
    facts: dict[str, object] = {
        "verdict": expected.get("verdict", ""),
        **({"risk": cost["risk"]} if cost.get("risk") else {}),
        "expected accuracy": f"{_format_range(expected)}. {expected['basis']}",
        **describe_time(cost),
        "memory": f"about {_format_memory(expected)}{_format_disk(expected)}",
    }
    return facts if compared is None else facts | {"methods": _list_methods(expected, compared)}


def describe_time(cost: dict[str, Any]) -> dict[str, object]:
    """The line about the time of all phases of a job; an older plan has none."""
    phases = {phase: seconds for phase, seconds in cost.get("phase_seconds", {}).items() if seconds >= _TOLD_SECONDS}
    if not phases:
        return {}
    each = ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in phases.items())
    return {"time": f"about {duration(sum(phases.values()))} of one core: {each}"}


def _list_methods(expected: dict[str, Any], compared: dict[str, Any]) -> str:
    from datalens_service.planning.expected_results import tell_range

    rows = [
        (
            f"{'* ' if one['default'] else '  '}{one['title']}{_BEST if one.get('best_for_labels') else ''}",
            _format_range(one),
            one["looks"] or "",
            duration(one["training_seconds"]),
            _format_memory(one),
        )
        for one in compared["methods"]
    ]
    averages = tell_range(expected["class_averages_low"], expected["class_averages_high"])
    real = tell_range(expected.get("real_low", 0.0), expected.get("real_high", 100.0))
    simpler = [
        ("  Noisy class averages", averages),
        ("  Guessing", f"{expected['guessing']:.0f} %"),
        ("  The real images", real),
    ]
    table = [*rows, *((*row, "", "", "") for row in simpler)]
    columns = ("  method", "accuracy", "looks", "trains", "memory")
    return f"{output.format_table(columns, table).plain}\n* The default. {compared['reason']}"


def _format_range(expected: dict[str, Any]) -> str:
    from datalens_service.planning.expected_results import tell_range

    guessed = "" if expected.get("measured", True) else " (guess)"
    return f"{tell_range(expected['accuracy_low'], expected['accuracy_high'])}{guessed}"


def _format_memory(expected: dict[str, Any]) -> str:
    return f"{expected.get('memory_bytes', 0) / 10**9:.3g} GB"


def _format_disk(expected: dict[str, Any]) -> str:
    size = expected.get("disk_bytes", 0)
    return f" and {size / 10**9:.3g} GB on a disk" if size else ""


def _describe_sampling(sampling: dict[str, Any]) -> dict[str, object]:
    """The lines about sampled batches."""
    return {
        "probability of a unit in a batch": f"{sampling['sampling_probability']:.6g}",
        "noise multiplier": f"{sampling['noise_multiplier']:.4f}",
        "expected passes": f"{sampling['expected_passes']:.1f}",
        "spare steps": sampling["spare_steps"],
        "part of δ that is slack": sampling["slack"],
        "ε of the run alone": sampling["epsilon_alone"],
    }


def _compute_allowance(spec_options: SpecOptions, top_k: int | None, noise_stddev: int | None) -> VoteAllowance:
    from datalens_service.spec import vote_allowance

    if top_k is None or noise_stddev is None or spec_options.delta is None:
        raise InvalidSpec("Name --data, or --top-k, --noise-stddev and --delta.")
    named = (spec_options.method, spec_options.preset, spec_options.settings or None)
    if any(option is not None for option in named) or spec_options.purpose != "look":
        raise InvalidSpec("--method, --preset, --purpose and --set need --data.")
    return vote_allowance(top_k, noise_stddev, spec_options.epsilon, spec_options.delta)


def _describe_allowance(allowance: VoteAllowance) -> dict[str, object]:
    return {
        "images": f"{allowance.images:,}",
        "μ": allowance.mu,
        "ε planned": allowance.epsilon_at_plan,
        "δ": allowance.delta,
    }


def _read_encoder(path: Path) -> dict[str, Any]:
    from datalens_service.services import encoders

    return encoders.read(path).model_dump()


def _read_schema(data: Path, choices: ReadingChoices) -> Schema:
    from datalens_service.data import read_upload

    return read_upload(data, choices).schema


def _price_plan(spec_options: SpecOptions, schema: Schema, accuracy: float | None, *, follow: bool) -> ForecastPlan:
    """Price a plan, at the ε that a wanted accuracy needs if that is to be followed."""
    from datalens_service.planning.target import find_target

    shares = spec_options.read_shares()
    spec = spec_options.build_spec(schema)
    target = None if accuracy is None else find_target(spec, schema, accuracy, shares)
    if target is not None and follow:
        spec = replace(spec_options, epsilon=target.epsilon).build_spec(schema)
    return build_forecast(spec, schema, shares, spec_options.purpose == "teach").model_copy(update={"target": target})


def build_forecast(
    spec: TrainingSpec, schema: Schema, shares: tuple[float, ...] | None, teaching: bool
) -> ForecastPlan:
    """Price a job of this machine, with what is expected of it; `teaching` if its purpose is `teach`."""
    from datalens_service.planning.expectations import compare, expect
    from datalens_service.planning.phases import expect_phases, measure_machine
    from datalens_service.planning.target import ForecastPlan

    expected, compared = (ask(spec, schema, measure_machine(), shares, teaching) for ask in (expect, compare))
    priced = spec.price(schema).spoken().model_copy(update={"phase_seconds": expect_phases(spec, schema)})
    return ForecastPlan(**priced.model_dump(), expectation=expected, comparison=compared)
