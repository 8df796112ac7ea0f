"""Local pipelines of diffusers as generators: tiny ones that are built here, with weights drawn at random."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.contracts.plugins import check_generator
from datalens_service.data.dataset import Schema
from datalens_service.methods import PrivateEvolution
from datalens_service.models.generators import diffusers_folder
from datalens_service.models.generators.installed import InstalledGenerator, find_installed, list_installed
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.report.privacy_statement import describe_public_inputs
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.methods.builders import stripes

SCHEMA = Schema(height=12, width=10, channels=3, class_names=("red_box", "blue box"), num_units=100)


def build_unconditional(folder: Path) -> None:
    import torch
    from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

    torch.manual_seed(0)
    network = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 8),
        norm_num_groups=4, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
    )  # fmt: skip
    DDIMPipeline(network, DDIMScheduler(num_train_timesteps=20)).save_pretrained(folder, safe_serialization=True)


def build_text_to_image(folder: Path) -> None:
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    folder.mkdir()
    letters = [chr(code) for code in range(97, 123)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=16)
    text = CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, bos_token_id=len(words) - 2, eos_token_id=len(words) - 1,
    )  # fmt: skip
    network = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 8),
        norm_num_groups=4, cross_attention_dim=8, attention_head_dim=2,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    coder = AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, latent_channels=4, sample_size=16,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    schedule = DDIMScheduler(num_train_timesteps=20, steps_offset=1, clip_sample=False)
    made = StableDiffusionPipeline(
        coder, CLIPTextModel(text), tokenizer, network, schedule,
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    made.save_pretrained(folder, safe_serialization=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("diffusers")
    root = tmp_path_factory.mktemp("pipelines")
    build_unconditional(root / "noise")
    build_text_to_image(root / "words")
    for name in ("noise", "words"):
        (root / name / "datalens.json").write_text('{"steps": 2, "batch": 5}')
    return root


@pytest.fixture
def pipelines(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(built, tmp_path / "pipelines")
    monkeypatch.setenv("DATALENS_DIFFUSERS_FOLDER", str(tmp_path / "pipelines"))
    return tmp_path / "pipelines"


@pytest.mark.parametrize("name", ["diffusers.noise", "diffusers.words"])
@pytest.mark.usefixtures("pipelines")
def test_a_folder_is_a_generator_that_holds_the_contract_without_a_network(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*_arguments: Any) -> None:
        raise AssertionError("it asks the network")

    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket, "getaddrinfo", connected)
    findings = list(check_generator(lambda schema: InstalledGenerator(name, schema)))
    assert len(findings) > 10
    assert [finding for finding in findings if finding.complaint] == []


def test_what_the_benchmark_trains_is_a_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("diffusers")
    from benchmarks import small_diffusion

    monkeypatch.setenv("DATALENS_DIFFUSERS_FOLDER", str(tmp_path))
    images = np.random.default_rng(0).integers(256, size=(8, 12, 10, 3), dtype=np.uint8)
    first = small_diffusion.build(3)
    before = [weights.detach().numpy().copy() for weights in first.parameters()]
    network, losses = small_diffusion.train(first, images, 0.1, 0)
    assert losses
    assert any((old != new.detach().numpy()).any() for old, new in zip(before, network.parameters(), strict=True))
    small_diffusion.save(network, len(losses), tmp_path / "pool")
    assert InstalledGenerator("diffusers.pool", SCHEMA).random(2, 0, 0).shape == (2, 12, 10, 3)


@pytest.mark.parametrize("name", ["diffusers.noise", "diffusers.words"])
def test_strength_says_how_far_a_variation_goes(pipelines: Path, name: str) -> None:
    def distance(strength: float) -> float:
        settings = {"steps": 10, "strength": strength}
        (pipelines / name.removeprefix("diffusers.") / "datalens.json").write_text(json.dumps(settings))
        made = InstalledGenerator(name, SCHEMA)
        images = np.full((4, 12, 10, 3), 128, dtype=np.uint8)
        images[:, :6] = 20
        return float(np.abs(made.variations(images, 0, 1).astype(float) - made.variations(images, 0, 2)).mean())

    assert distance(0.1) < distance(1.0)


def test_class_names_are_the_prompts(pipelines: Path) -> None:
    (pipelines / "words" / "datalens.json").write_text('{"steps": 2, "prompt": "{class}, {style}"}')
    assert diffusers_folder.read_settings("n", pipelines / "words").fill_prompt("red_box") == "red box, {style}"
    made = InstalledGenerator("diffusers.words", SCHEMA)
    other = InstalledGenerator("diffusers.words", SCHEMA.model_copy(update={"class_names": ("green", "blue box")}))
    assert not np.array_equal(made.random(2, 0, 0), other.random(2, 0, 0))
    np.testing.assert_array_equal(made.random(2, 1, 0), other.random(2, 1, 0))


def test_a_job_is_made_of_it_and_names_it_with_the_hash_of_its_folder(pipelines: Path) -> None:
    method = PrivateEvolution(generator="diffusers.noise", rounds=2, candidates=6, images=4)
    private = stripes()
    spec = TrainingSpec(method=method, epsilon=20.0, delta=1e-4)
    made = run(spec, private, account=MemoryAccount(spec.limit_units(private.schema)))
    assert made.generator.sample(8)[0].shape[0] == 8
    used = made.public_inputs.generator
    assert used is not None
    listed = "find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum"
    lines = subprocess.run(["bash", "-c", listed], cwd=pipelines / "noise", capture_output=True, check=True).stdout
    assert used.sha256 == hashlib.sha256(lines).hexdigest()
    assert used.sha256 in " ".join(describe_public_inputs(made.public_inputs))
    (pipelines / "noise" / "README.md").write_text("changed")
    assert find_installed("diffusers.noise").sha256 != used.sha256


def test_generators_are_listed_and_those_that_are_missing_are_refused(pipelines: Path) -> None:
    names = [one.name for one in list_installed()]
    assert "rendered" in names
    assert names[-2:] == ["diffusers.noise", "diffusers.words"]
    for name in ("diffusers.none", "diffusers...", "diffusers.", "diffusers..", "diffusers.noise.unet"):
        with pytest.raises(InvalidSpec, match="There is no pipeline"):
            find_installed(name)
    schema = stripes().schema.model_copy(update={"channels": 4})
    with pytest.raises(InvalidSpec, match="grey or RGB"):
        PrivateEvolution(generator="diffusers.noise").plan(schema, 10**9)


def change_index(folder: Path, **changes: Any) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | changes))


def add_pickle(folder: Path) -> None:
    (folder / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"cos\nsystem\n")


def add_code(folder: Path) -> None:
    (folder / "pipeline.py").write_text("raise SystemExit")


def take_weights(folder: Path) -> None:
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()


def name_foreign_part(folder: Path) -> None:
    change_index(folder, unet=["subprocess", "Popen"])


def name_own_class(folder: Path) -> None:
    change_index(folder, _class_name=["pipeline", "Own"])


def break_index(folder: Path) -> None:
    (folder / "model_index.json").write_text("[]")


def set_nonsense(folder: Path) -> None:
    (folder / "datalens.json").write_text('{"steps": 0}')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (add_pickle, "has unet/diffusion_pytorch_model.bin.*safetensors"),
        (add_code, "has pipeline.py"),
        (take_weights, "no weights"),
        (name_foreign_part, "takes the part unet from code"),
        (name_own_class, "takes the pipeline from code"),
        (break_index, "not that of a pipeline"),
        (set_nonsense, "datalens.json .* steps"),
    ],
)
def test_a_folder_that_could_hold_code_or_holds_nothing_is_refused(pipelines: Path, change: Any, said: str) -> None:
    change(pipelines / "noise")
    with pytest.raises(InvalidSpec, match=said):
        find_installed("diffusers.noise")
    with pytest.raises(InvalidSpec, match=said):
        InstalledGenerator("diffusers.noise", SCHEMA)


def test_a_pipeline_of_another_kind_is_refused_where_it_is_loaded(pipelines: Path) -> None:
    change_index(pipelines / "noise", _class_name="AudioDiffusionPipeline")
    with pytest.raises(WorkerUnavailable, match=r"diffusers\.noise is not one that makes and varies images"):
        InstalledGenerator("diffusers.noise", SCHEMA)


@pytest.mark.usefixtures("pipelines")
def test_without_the_extra_the_request_is_refused_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(diffusers_folder, "version", missing)
    with pytest.raises(InvalidSpec, match=r"pip install 'datalens-service\[diffusers\]'"):
        find_installed("diffusers.noise")
