"""A local pipeline of diffusers as a generator: unconditional, or text to image with image to image for variations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from PIL import Image, ImageOps

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.generators.diffusers_folder import (
    PipelineSettings,
    find_folder,
    read_origin,
    read_settings,
)

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_UNCONDITIONAL: Final = ("DDPMPipeline", "DDIMPipeline")
_MODES: Final = {1: "L", 3: "RGB"}

Seeds = list["torch.Generator"]


class DiffusersPipeline:
    """Makes images by the pipeline of a folder, on files that are there already.

    Args:
        name: Name of the generator.
        schema: Public schema of the images to make; class names become prompts.
        device: "cpu", "cuda", …

    Raises:
        InvalidSpec: Folder or package are missing, or the folder is not taken.
        WorkerUnavailable: diffusers cannot load the pipeline, or it is of another kind.
    """

    def __init__(self, name: str, schema: Schema, device: str = "cpu") -> None:
        read_origin()
        folder = find_folder(name)
        self._schema, self._device, self._settings = schema, device, read_settings(name, folder)
        try:
            pipeline = _load(str(folder), device)
            unconditional = type(pipeline).__name__ in _UNCONDITIONAL
            self._made: _Unconditional | _TextToImage = (_Unconditional if unconditional else _TextToImage)(pipeline)
        except Exception as error:
            raise WorkerUnavailable(
                f"The generator {name} is not one that makes and varies images: {type(error).__name__}: {error}"
            ) from error

    def random(self, count: int, label: int, seed: int) -> Images:
        def draw(prompts: list[str], _rows: slice, seeds: Seeds) -> list[Picture]:
            return self._made.draw(prompts, seeds, self._settings.steps)

        return self._in_batches(count, label, seed, draw)

    def variations(self, images: Images, label: int, seed: int) -> Images:
        def vary(prompts: list[str], rows: slice, seeds: Seeds) -> list[Picture]:
            return self._made.vary([_picture(image) for image in images[rows]], prompts, seeds, self._settings)

        return self._in_batches(len(images), label, seed, vary)

    def _in_batches(
        self, count: int, label: int, seed: int, make: Callable[[list[str], slice, Seeds], list[Picture]]
    ) -> Images:
        """Make images a batch at a time; each has a seed of its own."""
        prompt = self._settings.fill_prompt(self._schema.class_names[label])
        drawn = np.random.default_rng([seed, label]).integers(2**63, size=count)
        made: list[Images] = []
        for start in range(0, count, self._settings.batch):
            rows = slice(start, min(count, start + self._settings.batch))
            seeds = [torch.Generator("cpu").manual_seed(int(one)) for one in drawn[rows]]
            made += [self._fit(picture) for picture in make([prompt] * len(seeds), rows, seeds)]
        return np.stack(made)

    def _fit(self, picture: Picture) -> Images:
        """Crop a picture to the shape of the schema around its centre, and scale it."""
        schema = self._schema
        fitted = ImageOps.fit(picture.convert(_MODES[schema.channels]), (schema.width, schema.height))
        return np.asarray(fitted, dtype=np.uint8).reshape(schema.height, schema.width, schema.channels)


def _load(folder: str, device: str) -> Any:
    from diffusers import DiffusionPipeline

    load: Any = DiffusionPipeline.from_pretrained
    pipeline = load(
        folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, low_cpu_mem_usage=False
    ).to(device)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _picture(image: Images) -> Picture:
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("RGB")


class _Unconditional:
    """A network that removes noise, and its schedule; prompts mean nothing to it."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline, self._network, self._schedule = pipeline, pipeline.unet, pipeline.scheduler
        if self._network.config.in_channels not in _MODES:
            raise ValueError(f"it makes images of {self._network.config.in_channels} channels")

    def draw(self, prompts: list[str], seeds: Seeds, steps: int) -> list[Picture]:
        made: list[Picture] = self._pipeline(batch_size=len(prompts), generator=seeds, num_inference_steps=steps).images
        return made

    @torch.no_grad()
    def vary(
        self, pictures: list[Picture], _prompts: list[str], seeds: Seeds, settings: PipelineSettings
    ) -> list[Picture]:
        """Add noise up to a step of the schedule, and remove it again (SDEdit, Meng et al. 2022)."""
        self._schedule.set_timesteps(settings.steps)
        times = self._schedule.timesteps[-max(1, round(settings.steps * settings.strength)) :]
        pixels = self._to_pixels(pictures)
        noise = torch.cat([torch.randn(pixels[:1].shape, generator=seed) for seed in seeds]).to(pixels)
        noisy = self._schedule.add_noise(pixels, noise, times[:1].expand(len(pixels)).to(pixels.device))
        for time in times:
            predicted = self._network(noisy, time).sample
            noisy = self._schedule.step(predicted, time, noisy, generator=seeds).prev_sample
        rounded = (noisy / 2 + 0.5).clamp(0, 1).mul(255).round().byte().cpu().permute(0, 2, 3, 1).numpy()
        return [_picture(image) for image in rounded]

    def _to_pixels(self, pictures: list[Picture]) -> torch.Tensor:
        size = self._network.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        mode = _MODES[self._network.config.in_channels]
        scaled = [np.asarray(picture.convert(mode).resize((width, height))) for picture in pictures]
        pixels = np.stack(scaled).reshape(len(scaled), height, width, -1).transpose(0, 3, 1, 2)
        return torch.from_numpy(pixels / np.float32(127.5) - 1).to(self._network.device)


class _TextToImage:
    """A pipeline from text to images, and one of the same parts from images to images."""

    def __init__(self, pipeline: Any) -> None:
        from diffusers import AutoPipelineForImage2Image, AutoPipelineForText2Image

        self._draw = AutoPipelineForText2Image.from_pipe(pipeline)
        self._vary = AutoPipelineForImage2Image.from_pipe(pipeline)
        for part in (self._draw, self._vary):
            part.set_progress_bar_config(disable=True)
        self._size: tuple[int, int] | None = None

    def draw(self, prompts: list[str], seeds: Seeds, steps: int) -> list[Picture]:
        made: list[Picture] = self._draw(prompt=prompts, generator=seeds, num_inference_steps=steps).images
        return made

    def vary(
        self, pictures: list[Picture], prompts: list[str], seeds: Seeds, settings: PipelineSettings
    ) -> list[Picture]:
        size = self._find_size()
        # Image to image leaves out steps by its strength, and needs one at least.
        steps = max(settings.steps, int(np.ceil(1 / settings.strength)))
        made: list[Picture] = self._vary(
            prompt=prompts,
            image=[picture.resize(size) for picture in pictures],
            strength=settings.strength,
            generator=seeds,
            num_inference_steps=steps,
        ).images
        return made

    def _find_size(self) -> tuple[int, int]:
        """Return width and height of the pipeline's images, by one image of a single step."""
        if self._size is None:
            self._size = self.draw([""], [torch.Generator("cpu").manual_seed(0)], 1)[0].size
        return self._size
