"""Files of weights, read without running anything that they hold."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from datalens_service.base.errors import InvalidInput

Weights = dict[str, Tensor]

MOST_BYTES: Final = 2**31
_SAFETENSORS: Final = ".safetensors"
_GROUPS: Final = ("state_dict", "model", "teacher")
"""Members of a checkpoint under which training programs keep the weights."""
_PREFIXES: Final = ("module.", "backbone.")


def read_weights(path: Path) -> Weights:
    """Read the tensors of a file by their names: safetensors, or what `torch.save` wrote of a `state_dict`.

    Raises:
        InvalidInput: It cannot be read, is too large, or holds anything but tensors.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"The file of weights {path} is larger than {MOST_BYTES // 2**30} GiB.")
        found = safetensors.torch.load_file(path) if path.suffix == _SAFETENSORS else _read_checkpoint(path)
    except OSError as error:
        raise InvalidInput(f"The file of weights {path} cannot be read: {error.strerror}.") from None
    except SafetensorError:
        raise InvalidInput(f"{path} is not a whole safetensors file.") from None
    if not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise InvalidInput(f"{path} holds no weights by their names: save the state dict of the network.")
    return {_strip_prefixes(str(name)): value.to(torch.float32) for name, value in found.items()}


def _read_checkpoint(path: Path) -> Mapping[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InvalidInput(
            f"{path} is not a file of weights alone, and what else it holds is not run: save the state dict of the "
            "network, best as safetensors."
        ) from None
    except (EOFError, KeyError, RuntimeError, ValueError, AttributeError, TypeError, zipfile.BadZipFile):
        raise InvalidInput(f"{path} is not a whole file of weights of PyTorch.") from None
    if not isinstance(found, Mapping):
        return {}
    inner = next((found[group] for group in _GROUPS if isinstance(found.get(group), Mapping)), found)
    return inner


def _strip_prefixes(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
