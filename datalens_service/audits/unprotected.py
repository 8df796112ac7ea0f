"""A network trained without privacy: what attacks find where nothing protects the records.

It is for rehearsals alone. It never leaves the process, so nothing is charged for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from datalens_service.data.dataset import Dataset

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier

PRIVATE_READS = ("attacks",)

ARCHITECTURE: Final = "mlp"
"""A hidden layer of 128 units."""
_LEARNING_RATE: Final = 1e-3
_BATCH: Final = 8


def train_unprotected(dataset: Dataset, seed: int, passes: int, architecture: str = ARCHITECTURE) -> Classifier:
    """A network trained by Adam without clipping and without noise."""
    import torch
    from torch import nn

    from datalens_service.models.classifiers.architectures import build_network
    from datalens_service.models.classifiers.classifier import Classifier

    settings = {"architecture": architecture}
    network = build_network(settings, dataset.schema, seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    pixels = np.ascontiguousarray(dataset.train.images.transpose(0, 3, 1, 2))
    images, labels = torch.from_numpy(pixels).float() / 255, torch.from_numpy(dataset.train.labels)
    order = torch.Generator().manual_seed(seed)
    for _ in range(passes):
        for rows in torch.split(torch.randperm(len(labels), generator=order), _BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    tensors = {name: value.detach().numpy().copy() for name, value in network.named_parameters()}
    return Classifier(dataset.schema, settings, tensors)
