"""What the tables compare: each row is a preset, or a method with its settings, and nothing else.

Settings of DataLens from scratch were chosen on MNIST (docs/utility.md); Fashion-MNIST was run with what came out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from datalens_service.cli.specs import SpecOptions


class Row(NamedTuple):
    """How one row is made."""

    title: str
    method: str | None = None
    preset: str | None = None
    settings: tuple[str, ...] = ()
    at: Mapping[float, tuple[str, ...]] = {}
    """Settings for one ε alone."""

    def options(self, epsilon: float, delta: float, seed: int, extra: tuple[str, ...] = ()) -> SpecOptions:
        """The request. Settings of a trial replace those of this ε, and these the row's own."""
        given = (*self.settings, *self.at.get(epsilon, ()), *extra)
        settings = list({setting.partition("=")[0]: setting for setting in given}.values())
        return SpecOptions(epsilon, delta, self.method, self.preset, settings, seed=seed)


_SCRATCH: Final = (
    "teacher=kernel", "student=class_networks", "shards=class_pure", "vote_basis=dct", "vote_dimensions=64",
    "top_k=16", "teacher_batch=20", "clip=10", "stochastic=false", "threshold=none", "images_per_step=100",
    "steps=100", "z_dim=16", "image_step_size=1", "student_learning_rate=6e-3", "student_averaging=0.9",
)  # fmt: skip
_FEWER_STEPS: Final = {0.2: ("steps=30",)}

ROWS: Final = {
    "moments": Row("floor B: `moments`", method="moments"),
    "mixture": Row("`mixture`", method="mixture"),
    "shapes": Row("`shapes`, `content` as the set has it", method="shapes"),
    "rejection": Row("`rejection`", method="rejection"),
    "diffusion": Row("`diffusion`", preset="diffusion"),
    "auto": Row("preset `auto`", preset="auto"),
    "guided": Row("`guided`", method="guided"),
    "warm": Row("DataLens after a warm start, preset `balanced`", preset="balanced"),
    "scratch": Row("DataLens from scratch, ours", method="datalens", settings=_SCRATCH, at=_FEWER_STEPS),
    "klevel": Row(
        "the same with votes of D2P-Fed", method="datalens", at=_FEWER_STEPS,
        settings=(*_SCRATCH, "votes=klevel", "levels=16", "clip=0.05"),
    ),
    "count_sketch": Row(
        "the same with votes of FetchSGD", method="datalens", at=_FEWER_STEPS,
        settings=(*_SCRATCH, "votes=count_sketch", "sketch_rows=5", "sketch_columns=32"),
    ),
    "g_pate": Row("G-PATE, ours", preset="g_pate"),
    "gs_wgan": Row("GS-WGAN with all critics, ours", preset="gs_wgan"),
    "pate_gan": Row("PATE-GAN after a warm start, ours", preset="pate_gan"),
    "pate_gan_scratch": Row("PATE-GAN from scratch", preset="pate_gan", settings=("warm_start=null",)),
    "dp_gan": Row("DP-GAN after a warm start, ours", preset="dp_gan"),
    "dp_gan_scratch": Row(
        "DP-GAN from scratch, Poisson batches", preset="dp_gan",
        settings=("warm_start=null", "sampling=poisson", "batch=600", "steps=400", "updates_per_generator_step=1"),
    ),
}  # fmt: skip

PRESETS: Final = {
    "mnist": "paper",
    "fashion_mnist": "paper_fashion_mnist",
    "signs": "paper_celeba_gender",
    "hundred": "paper",
}
