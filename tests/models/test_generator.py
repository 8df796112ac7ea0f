"""Saved generators: public names and numbers only, so that files outlive a rearrangement of the code."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.models.classifiers.architectures import build_network as build_classifier
from datalens_service.models.classifiers.last_layer import LastLayerClassifier
from datalens_service.models.generators import pool
from datalens_service.models.generators.denoiser import diffusion as diffusing
from datalens_service.models.generators.denoiser.denoiser import Denoiser
from datalens_service.models.generators.denoiser.denoiser_shape import DenoiserShape
from datalens_service.models.generators.gaussian import labelled
from datalens_service.models.generators.gaussian.guided import pack
from datalens_service.models.generators.generator import KINDS, Generator
from datalens_service.models.generators.level_sets import rejection as rejecting
from datalens_service.models.generators.level_sets.level_sets import LevelSets
from datalens_service.models.generators.level_sets.rejection import TOPOLOGY_NUMBERS
from datalens_service.models.generators.networks import build_network

from .builders import schema_of

CLASSES, RANK = 3, 4
NETWORKS = {
    "student": {"architecture": "student", "z_dim": 4, "hidden": 8, "maps": 2},
    "refined": {"architecture": "refined", "rank": RANK, "width": 2},
    "class_networks": {"architecture": "class_networks", "z_dim": 4, "frequencies": 6, "hidden": 8},
}
SHAPES = {"content": "drawings", "spread": 1.0}
GUIDED = {"start": "gaussian", "spread": 1.0, "least_spread": 1.0, "poses": True, "surfaces": True}


def gaussian(schema: Schema) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"basis": (schema.dimensions, RANK), "means": (CLASSES, RANK), "factors": (CLASSES, RANK, RANK)}
    return {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}


def shapes(schema: Schema) -> dict[str, np.ndarray]:
    rng, length = np.random.default_rng(0), LevelSets(schema, "drawings").dimensions
    sizes = {"basis": (length, RANK), "means": (CLASSES, length), "factors": (CLASSES, RANK, RANK)}
    tensors = {name: rng.random(size, dtype=np.float32) for name, size in sizes.items()}
    return tensors | {"tolerances": np.full(CLASSES, 1e9, dtype=np.float32)}


def rejection(schema: Schema) -> Generator:
    classifier = {"architecture": "linear"}
    weights = {name: value.numpy() for name, value in build_classifier(classifier, schema).state_dict().items()}
    settings = {"start": SHAPES, "classifier": classifier}
    tilt = np.zeros((CLASSES, schema.dimensions + TOPOLOGY_NUMBERS), dtype=np.float32)
    tensors = rejecting.pack(shapes(schema), weights, tilt, np.full(CLASSES, -1e9, dtype=np.float32))
    return Generator("rejection", schema, settings, tensors)


def labelled_moments(schema: Schema) -> Generator:
    classifier = {"architecture": "linear"}
    weights = {name: value.numpy() for name, value in build_classifier(classifier, schema).state_dict().items()}
    return Generator("labelled", schema, {"classifier": classifier}, labelled.pack(gaussian(schema), weights))


def diffusion(schema: Schema) -> Generator:
    start = rejection(schema)
    settings = {
        "width": 8, "blocks": 1, "path": 3, "start_stddev": 1.0,
        "start": {"kind": start.kind, "settings": start.settings},
    }  # fmt: skip
    weights = {name: value.numpy() for name, value in Denoiser(DenoiserShape(schema, 8, 1)).state_dict().items()}
    return Generator("diffusion", schema, settings, diffusing.pack(weights, start.tensors))


def labelled_pool(schema: Schema) -> dict[str, np.ndarray]:
    images = np.random.default_rng(0).integers(
        0, 256, (9, schema.height, schema.width, schema.channels), dtype=np.uint8
    )
    return pool.pack(images, np.eye(CLASSES)[np.arange(9) % CLASSES], np.full((9, CLASSES), 1 / CLASSES))


def every_generator(schema: Schema) -> dict[str, Generator]:
    single = gaussian(schema)
    mixture = {name: value if name == "basis" else value[:, None] for name, value in single.items()}
    mixture["weights"] = np.ones((CLASSES, 1), dtype=np.float32)
    guided = pack(single, LastLayerClassifier(schema, (2, 2), 4).tensors())
    networks = {
        name: Generator("network", schema, settings, build_network(settings, schema).tensors())
        for name, settings in NETWORKS.items()
    }
    return networks | {
        "gaussian": Generator("gaussian", schema, {}, single),
        "mixture": Generator("mixture", schema, {}, mixture),
        "guided": Generator("guided", schema, GUIDED, guided),
        "labelled": labelled_moments(schema),
        "shapes": Generator("shapes", schema, SHAPES, shapes(schema)),
        "rejection": rejection(schema),
        "diffusion": diffusion(schema),
        "pool": Generator("pool", schema, {}, labelled_pool(schema)),
        "evolved": Generator("evolved", schema, {}, labelled_pool(schema)),
    }


@pytest.mark.parametrize(
    "name",
    [*NETWORKS, "gaussian", "mixture", "guided", "labelled", "shapes", "rejection", "diffusion", "pool", "evolved"],
)
def test_a_saved_generator_names_no_code_and_draws_the_same(name: str, tmp_path: Path):
    generator = every_generator(schema_of(1, 8, 8))[name]
    generator.save(tmp_path / "generator.safetensors")
    content = (tmp_path / "generator.safetensors").read_bytes()
    assert b"datalens_service" not in content
    loaded = Generator.load(tmp_path / "generator.safetensors")
    assert (loaded.kind, loaded.schema, loaded.settings) == (generator.kind, generator.schema, generator.settings)
    np.testing.assert_array_equal(loaded.sample(6, seed=1)[0], generator.sample(6, seed=1)[0])


def test_a_denoiser_begins_at_samples_of_the_start_before_any_is_rejected(monkeypatch: pytest.MonkeyPatch):
    schema, labels = schema_of(1, 8, 8), np.arange(40) % CLASSES
    model = diffusion(schema)
    assert np.isfinite(rejecting.draw_proposals(*_start_of(model), labels, np.random.default_rng(0))).all()
    earlier = model.sample(6, seed=1)[0]
    monkeypatch.setattr(rejecting, "accept", refuse_all)
    chosen = Generator(model.kind, schema, model.settings | {"start_proposals": True}, model.tensors)
    assert (chosen.sample(6, seed=1)[0] != earlier).any()
    with pytest.raises(AssertionError, match="rejected"):
        Generator(model.kind, schema, model.settings, model.tensors).sample(6, seed=1)


def refuse_all(*_arguments: object) -> np.ndarray:
    raise AssertionError("a sample is rejected")


def _start_of(model: Generator) -> tuple[dict[str, np.ndarray], dict[str, object], Schema]:
    named = {name.removeprefix("start."): value for name, value in model.tensors.items() if name.startswith("start.")}
    return named, model.settings["start"]["settings"], model.schema


def test_another_file_is_refused(tmp_path: Path):
    save_file({"x": np.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInput, match="not a generator"):
        Generator.load(tmp_path / "other.safetensors")


def test_these_are_all_kinds():
    assert {generator.kind for generator in every_generator(schema_of(1, 8, 8)).values()} == KINDS.keys()


def test_tensors_of_a_guided_generator_keep_their_names(tmp_path: Path):
    """Files in the field have them."""
    every_generator(schema_of(1, 8, 8))["guided"].save(tmp_path / "generator.safetensors")
    with safe_open(tmp_path / "generator.safetensors", framework="numpy") as file:
        names = set(file.keys())
    assert {name.partition(".")[0] for name in names} == {"start", "labeller"}
    assert {"start.basis", "start.means", "start.factors", "labeller.head", "labeller.center"} <= names


def counting(monkeypatch: pytest.MonkeyPatch, kind: str) -> list[int]:
    """The lengths of the batches that are drawn from now on."""
    drawn: list[int] = []
    original = KINDS[kind]

    def draw(tensors, settings, schema, labels, rng):
        drawn.append(len(labels))
        return original(tensors, settings, schema, labels, rng)

    monkeypatch.setitem(KINDS, kind, draw)
    return drawn


def test_the_same_images_are_drawn_once(monkeypatch: pytest.MonkeyPatch):
    """A job packs them, trains a classifier on them, measures how they look and shows some."""
    schema = schema_of(1, 8, 8)
    generator = Generator("gaussian", schema, {}, gaussian(schema))
    fresh = Generator("gaussian", schema, {}, gaussian(schema)).sample(5000)[0]
    drawn = counting(monkeypatch, "gaussian")
    first, second = generator.sample(4096)[0], generator.sample(5000)[0]
    np.testing.assert_array_equal(first, fresh[:4096])
    np.testing.assert_array_equal(second, fresh)
    assert drawn == [2048, 2048, 5000 - 4096]


def test_other_seeds_and_labels_are_drawn_anew(monkeypatch: pytest.MonkeyPatch):
    schema = schema_of(1, 8, 8)
    generator = Generator("gaussian", schema, {}, gaussian(schema))
    generator.sample(2048)
    drawn = counting(monkeypatch, "gaussian")
    ones = generator.sample(2048, labels=np.ones(2048, dtype=np.int64))[0]
    other = generator.sample(2048, seed=1)[0]
    assert drawn == [2048, 2048]
    assert not np.array_equal(ones, other)


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("datalens_service.models.generators.generator._REMEMBERED_BYTES", 2048 * 64)
    schema = schema_of(1, 8, 8)
    generator = Generator("gaussian", schema, {}, gaussian(schema))
    generator.sample(3 * 2048)
    drawn = counting(monkeypatch, "gaussian")
    generator.sample(3 * 2048)
    assert drawn == [2048, 2048]


def test_whoever_waits_hears_of_every_batch_and_may_stop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("datalens_service.models.generators.generator._BATCHES", {"rejection": 5})
    schema = schema_of(1, 8, 8)
    generator, heard = every_generator(schema)["rejection"], []

    def stop(drawn: int, count: int) -> None:
        heard.append((drawn, count))
        if drawn >= 10:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        generator.sample(17, observe=stop)
    assert heard == [(5, 17), (10, 17)]
