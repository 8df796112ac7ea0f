"""Blocks of rows in which the product computes: their sizes, read from the calls that cut arrays into them."""

import ast
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import torch

import datalens_service
from datalens_service.models import per_record
from datalens_service.models.classifiers import classifier
from datalens_service.models.encoders import lite0_network, network, wavelets
from datalens_service.models.generators.level_sets import outlines

PRODUCT: Final = Path(datalens_service.__file__).parent
_SIDE: Final = 6
_CUTS: Final = ("split", "array_split", "tensor_split", "chunk", "batched", "unfold")
NO_ROWS: Final = 0
_ENCODERS: Final = (network.ScatteringNetwork, network.OnnxNetwork, lite0_network.Lite0Network)
_IMAGES_AT_ONCE: Final = max(encoder.images_at_once for encoder in _ENCODERS)

OTHER_SIZES: Final = {
    ("methods/descent/denoiser_gradients.py", "sizes"): NO_ROWS,
    ("methods/descent/diffusion_run.py", "[weight.numel() for weight in self._weights]"): NO_ROWS,
    ("methods/descent/dp_sgd_run.py", "[weight.numel() for weight in weights]"): NO_ROWS,
    ("methods/descent/individual_norms.py", "histogram.every"): NO_ROWS,
    ("methods/descent/unit_gradients.py", "tensor_sizes"): NO_ROWS,
    ("methods/public/private_evolution.py", "schema.num_classes"): NO_ROWS,
    ("methods/public/private_evolution.py", "self._schema.num_classes"): NO_ROWS,
    ("methods/public_start.py", "max(1, len(labels) // _BATCH)"): NO_ROWS,
    ("models/classifiers/classifier.py", "batch"): max(classifier._BATCH, _IMAGES_AT_ONCE),
    ("models/encoders/network.py", "self.images_at_once"): _IMAGES_AT_ONCE,
    ("models/encoders/wavelets.py", "planes_at_once(height, width)"): wavelets.planes_at_once(_SIDE, _SIDE),
    ("models/generators/dct.py", "len(self.counts)"): NO_ROWS,
    ("models/generators/dct.py", "np.cumsum(self.counts)[:-1]"): NO_ROWS,
    ("models/generators/diffusers_pipeline.py", "self._settings.batch"): NO_ROWS,
    ("models/generators/edges.py", "rows"): NO_ROWS,
    ("models/generators/gaussian/pooled_gaussian.py", "band"): NO_ROWS,
    ("models/generators/generator.py", "batch"): NO_ROWS,
    ("models/generators/level_sets/outlines.py", "planes"): outlines._PIXELS // _SIDE**2,
    ("models/generators/rendered.py", "many"): NO_ROWS,
    ("models/per_record.py", "size"): per_record._chunk_size(1, torch.device("cpu")),
    ("models/per_record.py", "sizes"): NO_ROWS,
    ("models/per_record.py", "self.tensor_sizes"): NO_ROWS,
}
"""Rows of a block, at most, in a company of thousands, whose images are of 6×6; where no constant of a module says it.

`NO_ROWS` where the coordinates of a row are cut, or released and public arrays alone.
"""


def find_sizes(paths: Iterable[Path]) -> dict[tuple[str, str], int]:
    """Return the rows of every block that modules cut, by the module's path and the expression of the size.

    Raises:
        KeyError: A size is neither a number, nor a constant of its module, nor in `OTHER_SIZES`.
    """
    found = {}
    for path in paths:
        name = path.relative_to(PRODUCT).as_posix()
        constants = vars(importlib.import_module(f"{PRODUCT.name}.{name[:-3].replace('/', '.')}"))
        for size in _sizes(ast.parse(path.read_text())):
            said = ast.unparse(size)
            number = size.value if isinstance(size, ast.Constant) else constants.get(said)
            if not isinstance(number, str):
                found[name, said] = number if isinstance(number, int) else OTHER_SIZES[name, said]
    return found


def _sizes(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the size in each call that cuts, as an expression."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match call:
            case ast.Call(ast.Name("range"), [_, _, size]) | ast.Call(ast.Name("told_blocks"), [_, size, *_]):
                yield size
            case ast.Call(ast.Attribute(owner, cut), given, named) if cut in _CUTS:
                array_comes_first = isinstance(owner, ast.Name) and owner.id in ("torch", "np", "itertools")
                sizes = [
                    *given[array_comes_first:][:1],
                    *(one.value for one in named if one.arg not in ("dim", "axis")),
                ]
                # Where an array is cut at every number of a range, its step is the size, and is found above.
                yield from (size for size in sizes if not ast.unparse(size).startswith("range("))
