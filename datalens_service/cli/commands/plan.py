"""`datalens plan`: what a budget pays for, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datalens_service.base.clock import duration
from datalens_service.base.errors import InvalidSpec
from datalens_service.cli import options, output
from datalens_service.cli.options import build_integer_parser
from datalens_service.cli.specs import MethodOptions, ReadingOptions, SpecOptions, build_choices

if TYPE_CHECKING:
    from datalens_service.data.intake.reading_choices import ReadingChoices
    from datalens_service.planning.expectations import PlanWithExpectation
    from datalens_service.spec import VoteAllowance

PRIVATE_READS = ("reading the upload",)


def plan(
    *,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Images as for `datalens train`; only their public schema is used.", exists=True),
    ] = None,
    planned: MethodOptions,
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
    method or preset on that data set.
    """
    spec_options = SpecOptions(**vars(planned)).with_encoders(_read_encoder)
    if data is None:
        allowance = _compute_allowance(spec_options, top_k, noise_stddev)
        output.show(allowance, output.format_facts(_describe_allowance(allowance)), as_json=as_json)
    elif top_k is not None or noise_stddev is not None:
        raise InvalidSpec("With --data, name parameters by --set, for example --set top_k=200.")
    else:
        summary = _price_plan(spec_options, data, build_choices(vars(reading)))
        priced = summary.model_dump()
        facts = describe_expectation(priced) | describe_plan(priced)
        output.show(summary, output.format_facts(facts), as_json=as_json)


def describe_plan(price: dict[str, Any]) -> dict[str, object]:
    """The lines a person reads about a plan."""
    most = "at most " if any("branch" in release for release in price["releases"]) else ""
    facts = {
        "method": price["method"],
        **({"images voted on": f"{price['images']:,}"} if price["images"] else {}),
        "releases": f"{most}{price['steps']:,}",
        "μ": price["mu"],
        "ε at plan": f"{most}{price['epsilon_at_plan']} of {price['epsilon_limit']}",
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
    facts: dict[str, object] = {
        "verdict": expected.get("verdict", ""),
        "expected accuracy": f"{_format_range(expected)}. {expected['basis']}",
        "training": f"about {duration(expected['training_seconds'])} on one core of this machine, in about "
        f"{_format_memory(expected)} of memory{_format_disk(expected)}; drawing and measuring the images come on top",
    }
    return facts if compared is None else facts | {"methods": _list_methods(expected, compared)}


def _list_methods(expected: dict[str, Any], compared: dict[str, Any]) -> str:
    from datalens_service.planning.reached import tell_range

    rows = [
        (
            f"{'* ' if one['default'] else '  '}{one['title']}",
            _format_range(one),
            one["looks"] or "",
            duration(one["training_seconds"]),
            _format_memory(one),
        )
        for one in compared["methods"]
    ]
    averages = f"{tell_range(expected['class_averages_low'], expected['class_averages_high'])} (guess)"
    simpler = [("  Noisy class averages", averages), ("  Guessing, classes equal", f"{expected['guessing']:.0f} %")]
    table = [*rows, *((*row, "", "", "") for row in simpler)]
    columns = ("  method", "accuracy", "looks", "trains", "memory")
    return f"{output.format_table(columns, table).plain}\n* The default. {compared['reason']}"


def _format_range(expected: dict[str, Any]) -> str:
    from datalens_service.planning.reached import tell_range

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
        "ε at plan": allowance.epsilon_at_plan,
        "δ": allowance.delta,
    }


def _read_encoder(path: Path) -> dict[str, Any]:
    from datalens_service.services import encoders

    return encoders.read(path).model_dump()


def _price_plan(spec_options: SpecOptions, data: Path, choices: ReadingChoices) -> PlanWithExpectation:
    from datalens_service.data import read_upload
    from datalens_service.planning.expectations import PlanWithExpectation, compare, expect, measure_machine

    schema = read_upload(data, choices).schema
    spec = spec_options.build_spec(schema)
    expected, compared = (ask(spec, schema, measure_machine()) for ask in (expect, compare))
    return PlanWithExpectation(**spec.price(schema).spoken().model_dump(), expectation=expected, comparison=compared)
