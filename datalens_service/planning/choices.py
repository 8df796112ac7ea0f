"""The methods that are offered to somebody who plans: presets, and what public images add to them."""

from __future__ import annotations

from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.methods import AnyMethod
from datalens_service.planning.job_names import PRESET_TITLES, TEACHING_TITLE
from datalens_service.planning.presets import preset

TEACH: Final = "teach"
"""Choice of the preset `auto` with the purpose of that name."""
POOL: Final = "pool"
"""The same where public images of a similar kind are named."""
OFFERED: Final = ("auto", "fast", "diffusion", TEACH, "balanced", "classifier", "paper")
TITLES: Final = {**PRESET_TITLES, TEACH: TEACHING_TITLE, POOL: "With public images of a similar kind"}


def choose(name: str, schema: Schema, epsilon: float) -> AnyMethod:
    """The method of a choice."""
    if name in (TEACH, POOL):
        return preset("auto", schema, epsilon, "teach", pool=name == POOL)
    return preset(name, schema, epsilon)
