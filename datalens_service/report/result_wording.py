"""Sentences of a report that depend on what was released: a generator, public images with labels, or a classifier."""

from typing import Final, NamedTuple

from datalens_service.report import phrases


class ResultWording(NamedTuple):
    """Sentences about one kind of released model; `{unit}` is the owner's word for a privacy unit.

    Attributes:
        synthetic: True if synthetic images are released.
        made: Description of the model, before "from {n} private images".
        studied: The thing that an attacker studies to tell whether one unit took part.
        covered: The guarantee covers this.
        released: The values that leave.
        never_released: The values that stay.
    """

    synthetic: bool
    made: str
    studied: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    released: tuple[str, ...]
    never_released: tuple[str, ...]


_GENERATOR: Final = ResultWording(
    synthetic=True,
    made="These images are synthetic: a generator drew them. It learned",
    studied="the generator and its images",
    covered=phrases.COVERED,
    not_covered=phrases.NOT_COVERED,
    released=phrases.RELEASED,
    never_released=phrases.NEVER_RELEASED,
)
_PUBLIC_IMAGES: Final = ResultWording(
    synthetic=False,
    made="These are public images, as they were uploaded or cropped and mirrored, with new labels. Which label "
    "belongs to which was learned",
    studied="the labels, and everything that is released with them,",
    covered=(
        "Labels: everything that labels, and the choice of images, tell of private images came out of the releases "
        "listed here. Each was charged to the budget before its noise was drawn.",
        "Everything computed from those releases alone: the labels, a classifier that gave them, and figures about the "
        "labelled images.",
        phrases.COVERED[2],
    ),
    not_covered=(
        "The public images. They show what, and whom, they showed before: rights and licence stay as they were, and "
        "people in them are people.",
        *phrases.NOT_COVERED[:4],
        "Facts about everybody. The labels show how classes differ, and conclusions drawn from that may concern "
        "people who took no part.",
        phrases.NOT_COVERED[5],
    ),
    released=(
        "Public images, unchanged or cropped and mirrored, with labels.",
        "The classifier that labelled them, if one did.",
        phrases.RELEASED[2],
    ),
    never_released=(
        phrases.NEVER_RELEASED[0],
        "Votes, gradients and sums before the noise, losses, class counts, logs.",
        phrases.NEVER_RELEASED[3],
    ),
)
_CLASSIFIER: Final = ResultWording(
    synthetic=False,
    made="This is a classifier of images. It learned",
    studied="the classifier, also every weight of it,",
    covered=(
        "Training: everything the classifier learned from private images came out of the releases listed here. Each "
        "was charged to the budget before its noise was drawn.",
        "Everything computed from those releases alone: the classifier, its predictions on any images, and what is "
        "trained on those predictions.",
        phrases.COVERED[2],
    ),
    not_covered=(
        *phrases.NOT_COVERED[:3],
        "Images that somebody sends to the classifier: the service that computes a prediction sees them.",
        phrases.NOT_COVERED[3],
        "Facts about everybody. The classifier shows what the classes have in common, and conclusions drawn from "
        "that may concern people who took no part.",
        phrases.NOT_COVERED[5],
    ),
    released=("The classifier, with all its weights; its weights before every step too, if the job keeps its iterates.",
              "Its predictions.", phrases.RELEASED[2]),
    never_released=(phrases.NEVER_RELEASED[0], "Gradients and sums before the noise, losses, class counts, logs.",
                    phrases.NEVER_RELEASED[3]),
)  # fmt: skip

PUBLIC_IMAGES: Final = "public images"
"""The kind of a generator that hands out public images, or parts of them."""

_WORDING: Final = {"generator": _GENERATOR, PUBLIC_IMAGES: _PUBLIC_IMAGES, "classifier": _CLASSIFIER}
_MODEL: Final = ResultWording(
    synthetic=False,
    made="This is a model of images. It learned",
    studied="the model, also every weight of it,",
    covered=tuple(sentence.replace("classifier, its predictions on any images", "model").replace("classifier", "model")
                  for sentence in _CLASSIFIER.covered),
    not_covered=phrases.NOT_COVERED,
    released=("The model, with all its weights.", phrases.RELEASED[2]),
    never_released=_CLASSIFIER.never_released,
)  # fmt: skip


def choose_wording(result: str) -> ResultWording:
    """Choose the sentences for a kind of released model; a new kind gets those that are true of any."""
    return _WORDING.get(result, _MODEL)
