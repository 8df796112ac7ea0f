"""A small diffusion model of a public pool, as a folder of diffusers that `private_evolution` takes for a generator.

    export DATALENS_DIFFUSERS_FOLDER=build/pipelines
    python -m benchmarks.small_diffusion --dataset cifar10 --minutes 10
    python -m benchmarks.pools --dataset cifar10 --method private_evolution --set generator=diffusers.cifar10

It learns from the pool that `benchmarks.pools` shows the other methods, with its mirror images. A call goes on from
the weights that the last one left, for so many minutes by the clock, and prints the steps of all calls.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.environment import provenance
from benchmarks.kept_results import print_result
from benchmarks.pools import DATASETS, draw
from datalens_service.data.dataset import Images
from datalens_service.models.generators.diffusers_folder import SETTINGS_FILE

SIDE: Final = 32
_BATCH: Final = 32
_LEARNING_RATE: Final = 1e-3
_DECAY: Final = 0.995
_NOISE_LEVELS: Final = 1000
_COUNT: Final = "trained.txt"
_SETTINGS: Final = {"steps": 20, "strength": 0.5, "batch": 128}


def build(channels: int) -> Any:
    """A U-Net of three sizes."""
    return UNet2DModel(
        sample_size=SIDE, in_channels=channels, out_channels=channels, layers_per_block=1, norm_num_groups=8,
        block_out_channels=(16, 32, 64), down_block_types=("DownBlock2D",) * 3, up_block_types=("UpBlock2D",) * 3,
    )  # fmt: skip


def train(network: Any, images: Images, seconds: float, seed: int) -> tuple[Any, list[float]]:
    """Return the network's averaged weights after so much time, and the loss of each step."""
    torch.manual_seed(seed)
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2) / np.float32(127.5) - 1)
    pixels = functional.interpolate(pixels, size=(SIDE, SIDE), mode="area")
    averaged = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(_DECAY))
    optimiser, schedule = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE), noise_schedule()
    losses: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        clean = pixels[torch.randint(len(pixels), (_BATCH,))]
        clean = torch.where(torch.rand(_BATCH, 1, 1, 1) < 0.5, clean, clean.flip(-1))
        noise, times = torch.randn_like(clean), torch.randint(_NOISE_LEVELS, (_BATCH,))
        loss = functional.mse_loss(network(schedule.add_noise(clean, noise, times), times).sample, noise)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        averaged.update_parameters(network)
        losses.append(loss.item())
    return averaged.module, losses


def noise_schedule() -> Any:
    """By the cosine of the level."""
    return DDIMScheduler(num_train_timesteps=_NOISE_LEVELS, beta_schedule="squaredcos_cap_v2")


def go_on(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on the pool from the weights of the folder, if there are any, and write them back."""
    _, pool = draw(options.dataset, "other", options.seed)
    before = int((folder / _COUNT).read_text()) if (folder / _COUNT).exists() else 0
    network: Any = UNet2DModel.from_pretrained(folder / "unet") if before else build(pool.schema.channels)
    began = time.process_time()
    network, losses = train(network, pool.train.images, 60 * options.minutes, options.seed + before)
    save(network, before + len(losses), folder)
    return {
        "dataset": options.dataset,
        "pool_images": len(pool.train.labels),
        "weights": sum(weights.numel() for weights in network.parameters()),
        "steps": before + len(losses),
        "loss": round(float(np.mean(losses[-100:])), 4),
        "seconds": round(time.process_time() - began, 1),
    }


def save(network: Any, steps: int, folder: Path) -> None:
    """Write a folder as the product takes it."""
    pipeline: Any = DDIMPipeline(network, noise_schedule())
    pipeline.save_pretrained(folder, safe_serialization=True)
    (folder / SETTINGS_FILE).write_text(json.dumps(_SETTINGS))
    (folder / _COUNT).write_text(str(steps))


def main() -> None:
    """Parse, train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=DATASETS, default="cifar10")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(os.environ["DATALENS_DIFFUSERS_FOLDER"]) / options.dataset
    print_result({**provenance(), **go_on(options, folder)})


if __name__ == "__main__":
    main()
