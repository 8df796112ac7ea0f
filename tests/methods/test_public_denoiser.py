"""A denoiser of public images finishes what pooled moments draw: at no charge, without labels, kept for later runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema, Split, Upload
from datalens_service.methods import ExecutionOptions, PooledMoments
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run

from .test_moments import SIDE, blobs

SPEC = TrainingSpec(method=PooledMoments(), epsilon=8.0, delta=1e-4)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_denoiser, "_STEPS", 40)


def pool(side: int = SIDE) -> Upload:
    """Light images with one dark pixel."""
    images = np.full((60, side, side, 1), 220, dtype=np.uint8)
    images[:, 1, 1] = 0
    schema = Schema(channels=1, height=side, width=side, class_names=("image",), num_units=60, records_are_public=True)
    return Upload(schema, Split(images, np.zeros(60, dtype=np.int64)), None)


def trained(spec: TrainingSpec, public: Upload | None, folder: Path | None = None) -> tuple[Result, MemoryAccount]:
    account = MemoryAccount(spec.limit_units(blobs().schema))
    return run(spec, blobs(), account=account, public=public, options=ExecutionOptions(public_models=folder)), account


def test_it_is_post_processing_and_is_said_where_the_result_goes(tmp_path: Path) -> None:
    plain, account = trained(SPEC, None)
    finished, charged = trained(SPEC, pool())
    assert charged.charges == account.charges
    assert (plain.public_inputs.images, plain.generator.kind) == (None, "gaussian")
    assert finished.public_inputs.images is not None
    assert finished.public_inputs.images.images == 60
    finished.generator.save(tmp_path / "generator.safetensors")
    images, _ = Generator.load(tmp_path / "generator.safetensors").sample(30, seed=2)
    np.testing.assert_array_equal(images, finished.generator.sample(30, seed=2)[0])


def test_more_noise_takes_images_nearer_to_public_ones() -> None:
    def brightness(stddev: float) -> float:
        spec = replace_method(PooledMoments(start_stddev=stddev))
        return float(trained(spec, pool())[0].generator.sample(60, seed=1)[0].mean())

    assert brightness(0.05) < brightness(10.0)


def replace_method(method: PooledMoments) -> TrainingSpec:
    return SPEC.model_copy(update={"method": method})


def test_it_is_learned_once_for_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = trained(SPEC, pool(), tmp_path / "kept")
    monkeypatch.setattr(public_denoiser, "fit_denoiser", None)
    again, _ = trained(SPEC, pool(), tmp_path / "kept")
    name = "denoiser.pixels.weight"
    np.testing.assert_array_equal(first.generator.tensors[name], again.generator.tensors[name])
    other = pool()
    other.train.images[0, 0] = 7
    with pytest.raises(TypeError):
        trained(SPEC, other, tmp_path / "kept")


def test_a_pool_of_another_size_is_refused_before_anything_is_charged() -> None:
    account = MemoryAccount(SPEC.limit_units(blobs().schema))
    with pytest.raises(InvalidSpec, match="measure"):
        run(SPEC, blobs(), account=account, public=pool(SIDE + 1))
    assert account.charges == []


def test_specs_of_before_keep_their_digest() -> None:
    assert "start_stddev" not in SPEC.model_dump_json()
    assert "start_stddev" in replace_method(PooledMoments(start_stddev=0.3)).model_dump_json()
