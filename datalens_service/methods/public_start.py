"""First weights for training, from images that were declared public: nothing private is read, nothing charged.

These are weights of a network; methods on scattering features fit their basis (`scattering`). With the classes of
the private set the whole network starts from them; with other classes all layers but the last; with a single class,
that is without labels, from telling by how many quarter turns an image is rotated (Gidaris, Singh and Komodakis 2018).
Images that are not square keep their size under half turns alone, which those authors tried, too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.public_source import PublicSource

if TYPE_CHECKING:
    import torch

_PASSES: Final = 3
_BATCH: Final = 128
_LEARNING_RATE: Final = 1e-3
_MOST_IMAGES: Final = 60_000
_QUARTER_TURNS, _HALF_TURNS = range(4), range(0, 4, 2)


class PublicImages(NamedTuple):
    """Images that somebody declared public, with their classes."""

    schema: Schema
    images: Images
    labels: Labels


def describe_source(public: PublicImages, *, verbatim: bool = False, held: bool = False) -> PublicSource:
    """Describe the public images, for every place where the result goes.

    Args:
        public: The images.
        verbatim: True if they are released themselves.
        held: True if the released model holds some of them.
    """
    digest = hashlib.sha256(np.ascontiguousarray(public.images).tobytes())
    digest.update(np.ascontiguousarray(public.labels).tobytes())
    return PublicSource(
        images=len(public.images),
        class_names=public.schema.class_names,
        sha256=digest.hexdigest(),
        verbatim=verbatim,
        held=held,
    )


def spread_over(public: PublicImages, most: int) -> PublicImages:
    """Keep at most so many images, evenly spaced, so that sorted classes all have their share."""
    step = -(-len(public.images) // most)
    return public._replace(images=np.asarray(public.images[::step]), labels=np.asarray(public.labels[::step]))


def check_same_size(private: Schema, public: Schema) -> None:
    """Refuse public images of another size or colour."""
    sizes = [f"{one.height}x{one.width}x{one.channels}" for one in (private, public)]
    if sizes[0] != sizes[1]:
        raise InvalidSpec(
            f"The public images measure {sizes[1]}, the private ones {sizes[0]}: upload the public ones prepared to "
            "the same size."
        )


def start_from_public(
    network: torch.nn.Module, settings: dict[str, Any], private: Schema, public: PublicImages, seed: int
) -> None:
    """Replace the weights of a network by those that it learns from public images.

    Args:
        network: A network with the last layer for the classes of `private`.
        settings: The settings of `build_network` for it.
    """
    import torch

    from datalens_service.models.classifiers.architectures import build_network

    check_same_size(private, public.schema)
    task = spread_over(public, _MOST_IMAGES) if public.schema.num_classes > 1 else _rotated(public)
    teacher = build_network(settings, task.schema, seed)
    _train(teacher, task.images, task.labels, np.random.default_rng(seed))
    same = task.schema.class_names == private.class_names
    learned = dict(teacher.named_parameters())
    last = set(list(learned)[-2:])
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if same or name not in last:
                weight.copy_(learned[name])


def _rotated(public: PublicImages) -> PublicImages:
    """Turn images without labels by quarters, whose numbers become their classes."""
    turns = _QUARTER_TURNS if public.schema.height == public.schema.width else _HALF_TURNS
    images = spread_over(public, _MOST_IMAGES // len(turns)).images
    turned = np.concatenate([np.rot90(images, quarters, axes=(1, 2)) for quarters in turns])
    labels = np.repeat(np.arange(len(turns), dtype=np.int64), len(images))
    names = tuple(str(90 * quarters) for quarters in turns)
    return PublicImages(public.schema.model_copy(update={"class_names": names}), turned, labels)


def _train(network: torch.nn.Module, images: Images, labels: Labels, rng: np.random.Generator) -> None:
    import torch
    from torch.nn import functional

    optimizer = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
    for _ in range(_PASSES):
        for rows in np.array_split(rng.permutation(len(labels)), max(1, len(labels) // _BATCH)):
            pixels = torch.from_numpy(np.ascontiguousarray(images[rows].transpose(0, 3, 1, 2))).float() / 255
            loss = functional.cross_entropy(network(pixels), torch.from_numpy(labels[rows]))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
