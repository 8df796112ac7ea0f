"""The looks of released images, in one of four words and in a sentence, from public facts alone.

A method states how much evidence makes its images soft or recognisable, read off the pictures in
docs/images/samples and by `benchmarks.panel`; the words are the same for all.
"""

from typing import Final, Literal

from datalens_service.data.dataset import Schema
from datalens_service.methods.base import Plan
from datalens_service.methods.facts import LEAST_EVIDENCE, Levels
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.methods.sums.pooled_moments import PooledMoments
from datalens_service.privacy.accounting import mu_of_ledger_units

Looks = Literal["noise", "soft", "recognisable", "like photographs"]

FAIR_EVIDENCE: Final = 5 * LEAST_EVIDENCE
"""The least that is advised; with less, images are smudges."""

_LARGEST_OUTLINED: Final = 32 * 32

_BLURRED: Final = "What moves from image to image is a blur; edges, texture and rare kinds are missing"
_SHARPENED: Final = "Edges come from a filter, in the place of a blur; details, texture and rare kinds are missing"
_FINISHED: Final = "Edges and texture come from public images and tell nothing of private ones; rare kinds are missing"
_SENTENCES: Final[dict[Looks, str]] = {
    "noise": "Expect noise more than pictures: with about {units}, this budget drowns most of what images of a class "
    "have in common.",
    "soft": "The images are soft: with about {units}, this budget shows what images of a class have in common at the "
    "same place, as rough shapes and tones. " + _BLURRED + ", and many images do not show the class of their label.",
    "recognisable": "Outlines are recognisable: with about {units}, this budget shows shapes. Texture is rough, "
    "rare kinds are missing, and not every image shows the class of its label.",
    "like photographs": "The images are public ones, or parts of them, and look as they did. Labels were learned "
    "from about {units}, and some are wrong.",
}
_EVOLVED: Final = (
    "The images look as the generator {name} makes them. Which of them are released was learned from about {units}."
)
_SCARCE: Final = (
    "The images are smudges: with about {units}, this budget shows rough tones of a class at most, and hardly a shape."
)
_TEXTURED: Final = "Noise lies over them, on purpose: classifiers learn more from it, and it shows nothing."


def count_evidence(schema: Schema, mu: float) -> float:
    """Return μ times the privacy units of a class, which decides how far a class stands out from noise."""
    return mu * schema.num_units / schema.num_classes


def judge_looks(method: RegisteredMethod, schema: Schema, ledger_units: int) -> Looks | None:
    """Choose the word; None for a classifier, and for a method that states no levels."""
    if method.releases_public_images:
        return "like photographs"
    levels = method.evidence_levels()
    if levels is None:
        return None
    if is_drowned(method, schema, ledger_units) or levels.textured:
        return "noise"
    return _judge_shapes(levels, schema, ledger_units)


def _judge_shapes(levels: Levels, schema: Schema, ledger_units: int) -> Looks:
    drawn = schema.channels == 1 and schema.height * schema.width <= _LARGEST_OUTLINED
    clear = count_evidence(schema, mu_of_ledger_units(ledger_units)) >= levels.recognisable
    return "recognisable" if drawn and clear else "soft"


def is_drowned(method: RegisteredMethod, schema: Schema, ledger_units: int) -> bool:
    """Tell whether the noise of a budget hides what images of a class have in common, as far as the method is known."""
    levels = method.evidence_levels()
    return levels is not None and count_evidence(schema, mu_of_ledger_units(ledger_units)) < levels.soft


def describe_images(method: RegisteredMethod, plan: Plan, schema: Schema, *, pool: bool) -> str:
    """Describe the images of a plan in a sentence or two; empty for a classifier and where nobody knows."""
    spent, generator = plan.charge().ledger_units, method.public_inputs().generator
    many = max(1, schema.num_units // schema.num_classes)
    units = f"{schema.privacy_unit.write_count(many)} a class on average"
    if generator is not None:
        return _EVOLVED.format(name=generator.name, units=units)
    levels, looks = method.evidence_levels(), judge_looks(method, schema, spent)
    if looks is None:
        return ""
    said = [_choose_sentence(method, schema, spent, looks)]
    said += [_TEXTURED] if levels is not None and levels.textured else []
    text = " ".join(said).format(units=units)
    if not pool or method.facts.public_images != "finish":
        sharpened = isinstance(method, PooledMoments) and method.draws_edges(schema)
        return text.replace(_BLURRED, _SHARPENED) if sharpened else text
    return text.replace(_BLURRED, _FINISHED) if _BLURRED in text else f"{text} {_FINISHED}."


def _choose_sentence(method: RegisteredMethod, schema: Schema, ledger_units: int, looks: Looks) -> str:
    levels = method.evidence_levels()
    if levels is None or is_drowned(method, schema, ledger_units):
        return _SENTENCES[looks]
    shapes = _judge_shapes(levels, schema, ledger_units)
    scarce = shapes == "soft" and count_evidence(schema, mu_of_ledger_units(ledger_units)) < FAIR_EVIDENCE
    return _SCARCE if scarce else _SENTENCES[shapes]
