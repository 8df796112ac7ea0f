"""What released images look like, in one of four words and in a sentence, from public facts alone.

Facts are the method, the privacy units of a class, μ, and whether public images help. No method speaks for itself.
Where images begin to be soft or recognisable was read off the pictures in docs/images/samples and by
`benchmarks.panel`.
"""

from typing import Final, Literal, NamedTuple

from datalens_service.data.dataset import Schema
from datalens_service.methods.base import Plan
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.privacy.accounting import mu_of_units

Looks = Literal["noise", "soft", "recognisable", "like photographs"]

LEAST_EVIDENCE: Final = 10.0
"""μ times the units of a class below which no method was of use: about 40 records of a class at ε = 1."""


FAIR_EVIDENCE: Final = 5 * LEAST_EVIDENCE
"""The least that is advised; with less, images are smudges."""


class _Levels(NamedTuple):
    """μ times the units of a class from which images are no longer noise, or recognisable if they ever are."""

    soft: float
    recognisable: float = float("inf")


_POOLED: Final = "pooled_moments"
_LABELLED: Final = "labelled_moments"
_OUTLINES: Final = _Levels(30, 300)
_PIXELS: Final = _Levels(100, 300)
_VOTES: Final = _Levels(1000)
_LEVELS: Final = {
    _POOLED: _Levels(LEAST_EVIDENCE),
    _LABELLED: _Levels(LEAST_EVIDENCE),
    "moments": _Levels(100),
    "mixture": _Levels(100),
    "shapes": _OUTLINES,
    "rejection": _OUTLINES,
    "rejection_or_diffusion": _OUTLINES,
    "guided": _PIXELS,
    "diffusion": _PIXELS,
    "datalens": _VOTES,
    "pate_gan": _VOTES,
    "dp_gan": _VOTES,
}
_WITHOUT_A_START: Final = _Levels(5000)
_STARTED: Final = frozenset({"datalens", "pate_gan", "dp_gan"})
_LARGEST_OUTLINED: Final = 32 * 32
_MOST_TEXTURE: Final = 0.5
"""Share of unmodelled variance that is drawn as noise, above which images look like it."""

_BLURRED: Final = "What moves from image to image is a blur; edges, texture and rare kinds are missing"
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
    """μ times the privacy units of a class: what noise leaves of a class."""
    return mu * schema.num_units / schema.num_classes


def judge_looks(method: RegisteredMethod, schema: Schema, units: int) -> Looks | None:
    """The word; None of a classifier, and of a method that others brought."""
    if method.releases_public_images:
        return "like photographs"
    levels = _find_levels(method)
    if levels is None:
        return None
    if is_drowned(method, schema, units) or _is_textured(method):
        return "noise"
    drawn = schema.channels == 1 and schema.height * schema.width <= _LARGEST_OUTLINED
    clear = count_evidence(schema, mu_of_units(units)) >= levels.recognisable
    return "recognisable" if drawn and clear else "soft"


def is_drowned(method: RegisteredMethod, schema: Schema, units: int) -> bool:
    """Whether the noise of a budget hides what images of a class have in common, as far as the method is known."""
    levels = _find_levels(method)
    return levels is not None and count_evidence(schema, mu_of_units(units)) < levels.soft


def _find_levels(method: RegisteredMethod) -> _Levels | None:
    if method.name in _STARTED and getattr(method, "warm_start", None) is None:
        return _WITHOUT_A_START
    return _LEVELS.get(method.name) if method.result == "generator" else None


def describe_images(method: RegisteredMethod, plan: Plan, schema: Schema, *, pool: bool) -> str:
    """What the images of a plan look like, in a sentence or two; empty of a classifier and of unknown methods."""
    looks, generator = judge_looks(method, schema, plan.charge().units), method.public_generator()
    many = max(1, schema.num_units // schema.num_classes)
    units = f"{many:,} {schema.unit}{'' if many == 1 else 's'} a class on average"
    if generator is not None:
        return _EVOLVED.format(name=generator.name, units=units)
    if looks is None:
        return ""
    said = [_choose_sentence(method, plan, schema, looks)]
    said += [_TEXTURED] if _is_textured(method) else []
    text = " ".join(said).format(units=units)
    if not pool or method.name != _POOLED:
        return text
    return text.replace(_BLURRED, _FINISHED) if _BLURRED in text else f"{text} {_FINISHED}."


def _choose_sentence(method: RegisteredMethod, plan: Plan, schema: Schema, looks: Looks) -> str:
    if method.name not in (_POOLED, _LABELLED) or is_drowned(method, schema, plan.charge().units):
        return _SENTENCES[looks]
    scarce = count_evidence(schema, mu_of_units(plan.charge().units)) < FAIR_EVIDENCE
    return _SCARCE if scarce else _SENTENCES["soft"]


def _is_textured(method: RegisteredMethod) -> bool:
    return method.name == _LABELLED or getattr(method, "texture", 0.0) > _MOST_TEXTURE
