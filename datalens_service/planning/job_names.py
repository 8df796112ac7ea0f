"""Titles of presets in plans, and default names of jobs. All of it is public."""

from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.methods import AnyMethod
from datalens_service.planning.presets import DEFAULT_PRESET, preset
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.spec import TrainingSpec

PRESET_TITLES: Final[dict[str, str]] = {
    "auto": "Best-looking",
    "fast": "Fast",
    "diffusion": "More texture",
    "large": "More texture, by a larger network",
    "balanced": "Balanced",
    "paper": "DataLens as published",
    "paper_fashion_mnist": "DataLens as published for Fashion-MNIST",
    "paper_celeba_gender": "DataLens as published for CelebA, gender",
    "paper_celeba_hair": "DataLens as published for CelebA, hair",
    "classifier": "Classifier",
    "g_pate": "G-PATE",
    "g_pate_paper": "G-PATE as published",
    "gs_wgan": "GS-WGAN",
    "gs_wgan_paper": "GS-WGAN as published",
    "dp_gan": "DP-GAN",
    "dp_gan_paper": "DP-GAN as published",
    "pate_gan": "PATE-GAN",
    "pate_gan_paper": "PATE-GAN as published",
}
"""Titles by the key of `PRESETS`."""

TEACHING_TITLE: Final = "Best for training"
"""Title of the preset `auto` with the purpose `teach`."""


def default_name(asked: RequestedSpec | TrainingSpec) -> str:
    """Return the name of a job that was given none, for example `Best-looking, ε 1`."""
    return f"{_title(asked)}, ε {asked.epsilon}"


def _title(asked: RequestedSpec | TrainingSpec) -> str:
    if isinstance(asked, RequestedSpec) and asked.purpose == "teach":
        return TEACHING_TITLE
    if asked.method is None:
        return PRESET_TITLES[asked.preset or DEFAULT_PRESET]
    return asked.method.facts.title


TEACH: Final = "teach"
"""The choice of the preset `auto` with the purpose of that name."""
POOL: Final = "pool"
"""The same choice where public images of a similar kind are named."""
OFFERED: Final = ("auto", "fast", "diffusion", TEACH, "balanced", "classifier", "paper")
TITLES: Final = {**PRESET_TITLES, TEACH: TEACHING_TITLE, POOL: "With public images of a similar kind"}


def choose(name: str, schema: Schema, epsilon: float) -> AnyMethod:
    if name in (TEACH, POOL):
        return preset("auto", schema, epsilon, "teach", pool=name == POOL)
    return preset(name, schema, epsilon)
