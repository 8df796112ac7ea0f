"""Ways round the wall, as they were tried: each fails here, or docs/mechanisms/wall.md says why it does not."""

import ast
import gc
import logging
import operator
import os
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from datalens_service.base.errors import ContributionFailed
from datalens_service.base.process_group import SINGLE_PROCESS
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import PlannedRelease, VectorSum
from datalens_service.mechanisms.apart import Apart
from datalens_service.mechanisms.confined import HERE, Calls
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows, Vault, WallBroken
from datalens_service.mechanisms.private_shards import Dealing, Place, PrivateShards
from datalens_service.mechanisms.unit_records import UnitRecords
from datalens_service.mechanisms.vaults import Vaults
from datalens_service.methods import Moments
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.driver import Training
from datalens_service.methods.script import Ask, ExecutionOptions, Outcome, RunInputs, Script
from datalens_service.methods.wall_rules import find_complaints, find_complaints_of_modules
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

PRODUCT = Path(__file__).parents[1] / "datalens_service"

SOURCES = {
    "attrgetter past the underscore": "import operator\nread = operator.attrgetter('_vault._read')(records)()",
    "attrgetter by its name": "from operator import attrgetter",
    "methodcaller": "import operator\nread = operator.methodcaller('_read')(vault)",
    "getattr with a text": "getattr(records, '_va' + 'ult')",
    "setattr of a private name": "setattr(records, 'made', None)",
    "vars": "vars(records)",
    "globals of a module": "globals()['kept'] = 1",
    "eval": "eval('records._vault')",
    "compile": "compile('records._vault', '', 'eval')",
    "import by a function": "__import__('gc')",
    "builtins by their name": "__builtins__['open']",
    "all objects": "import gc",
    "frames of callers": "import inspect",
    "frames by sys": "import sys",
    "modules by a text": "import importlib",
    "a frame of the own generator": "frame = script.gi_frame.f_back",
    "a frame of an error": "try:\n    1 / 0\nexcept Exception as error:\n    error.__traceback__",
    "sys inside torch": "import torch\ntorch.sys.modules",
    "os inside torch": "from torch import os",
    "ctypes of numpy": "import numpy as np\nnp.ctypeslib.as_array(1)",
    "ctypes": "import ctypes",
    "a pointer to memory": "address = tensor.data_ptr()",
    "weak references": "import weakref",
    "pickles": "import pickle",
    "threads that wait for a question": "import threading",
    "processes": "import subprocess",
    "sockets": "import socket",
    "the environment": "import os",
    "loggers": "import logging",
    "warnings": "import warnings",
    "context variables": "import contextvars",
    "what numpy calls on an error": "import numpy as np\nnp.seterrcall(print)",
    "seeds of all": "import torch\ntorch.manual_seed(3)",
    "hooks of all modules": "import torch\ntorch.nn.modules.module.register_module_forward_hook(print)",
    "a file": "open('/tmp/kept', 'w')",
    "a file by its path": "from pathlib import Path",
    "a temporary file": "from tempfile import NamedTemporaryFile",
    "a file of numpy": "import numpy as np\nnp.save('/dev/shm/kept', values)",
    "a file of an array": "values.tofile('/dev/shm/kept')",
    "a file of torch": "import torch\ntorch.save(values, '/tmp/kept')",
    "printed": "print(rows.values.mean())",
    "clocks": "import time",
    "a clock of numpy": "import numpy as np\nnp.datetime64('now')",
    "names of a module": "def vectors(rows, seen):\n    global kept\n    kept = rows.values.mean()",
    "an error that is caught": "try:\n    released = yield Ask(records, mechanism, vectors, None)\nfinally: ...",
    "warnings round a question": "with heard:\n    released = yield Ask(records, mechanism, vectors, None)",
    "records by their type": "from datalens_service.data.dataset import Split",
    "vaults by their type": "from datalens_service.mechanisms.private_records import Vault",
    "an account of its own": "from datalens_service.privacy.budget import UnchargedAccount",
    "noise of its own": "from datalens_service.privacy.randomness import NoiseSource",
    "a driver of its own": "from datalens_service.methods import driver",
    "the books": "from datalens_service.store.database import Database",
    "an attribute in a text": "'{0.gi_frame.f_back.f_locals}'.format(script)",
    "an attribute in the text of a mapping": "'{script.gi_frame}'.format_map(found)",
    "an attribute by a formatter": "import string\nstring.Formatter().get_field('0.gi_frame', [script], {})",
    "a pattern with a frame": "match script:\n    case object(gi_frame=frame): ...",
    "a pattern with a private name": "match records:\n    case object(_vault=vault): ...",
    "patterns that a class names": "class Own:\n    __match_args__ = ('gi_frame',)",
    "a type that is a text": "class Own:\n    kept: \"__import__('gc').get_objects()\" = 1",
    "texts that are evaluated as types": "import typing\ntyping.get_type_hints(vectors)",
    "a model of texts": "from pydantic import create_model",
    "a script within an error that is caught": "try:\n    made = yield from descend(records)\nfinally: ...",
    "a script within warnings": "with heard:\n    return (yield from descend(records))",
    "a file of a part of numpy": "import numpy as np\nnp.lib.format.open_memmap('/dev/shm/kept', 'w+')",
    "a file of a part of scipy": "from scipy.io import savemat",
    "a file of a part of torch": "import torch\ntorch.jit.save(vectors, '/tmp/kept')",
    "a compiler": "from torch.utils import cpp_extension",
    "processes of torch": "from torch import multiprocessing",
    "a clock of torch": "from torch.utils.benchmark import Timer",
    "a clock of a device": "import torch\ntorch.cuda.Event(enable_timing=True)",
    "a profile": "import torch\ntorch.autograd.profiler.profile()",
    "the seed of numpy": "import numpy as np\nnp.random.seed(int(rows.values.mean()))",
    "the state of numpy's seed": "from numpy.random import set_state",
    "the seed of torch by its name": "from torch import manual_seed",
    "threads of torch": "import torch\ntorch.set_num_threads(int(rows.values.mean()))",
    "what a whole library shares": "import torch\ntorch.backends.cudnn.benchmark = rows.values.mean() > 90",
    "all names of an object": "dir(records)",
    "the end of the process": "quit()",
    "a sum of its own": "def exact_sum(self, contributions): kept.append(contributions)",
}
"""Lines of a method's module that `wall_rules` complains of."""


@pytest.mark.parametrize("way", SOURCES)
def test_a_way_by_the_source_is_complained_of(way: str) -> None:
    assert list(find_complaints(ast.parse(SOURCES[way]), "my_package"))


@pytest.mark.parametrize(
    "line",
    [
        "import math, torch\nimport numpy as np\nfrom scipy import ndimage\nnp.random.default_rng(3)",
        "from datalens_service.methods.script import Ask, Outcome\nfrom datalens_service.data.dataset import Schema",
        "from my_package.helpers import vectors\nfrom . import helpers",
        "def run(self, plan, records, inputs):\n    released = yield Ask(records, mechanism, vectors, seen)",
        "def rows_of(rows, seen):\n    with torch.no_grad():\n        for row in rows.images: yield row.float()",
        "made = made._replace(values=values)\nself._fit = super()._begin()",
        "import torch\ntorch.nn.functional.relu(rows)\ntorch.linalg.norm(rows)\nfrom scipy.spatial import distance",
        "kind: Literal['open', 'eval'] = 'open'\nlicense: str = ''\nmatch kind:\n    case int(): ...",
        "def rows_of(rows, seen):\n    with torch.no_grad():\n        yield from chunks_of(rows)",
    ],
)
def test_what_methods_need_is_not_complained_of(line: str) -> None:
    assert list(find_complaints(ast.parse(line), "my_package")) == []


REVIEWED = {
    "methods/expected_quality.py": {"uses format"},
    "methods/base.py": {"uses vars"},
    "methods/descent/dp_sgd_parameters.py": {"imports importlib.util"},
    "methods/descent/iterates.py": {"imports pathlib", "imports safetensors", "imports safetensors.numpy"},
    "methods/script.py": {"imports pathlib"},
    "models/classifiers/last_layer.py": {"uses torch.manual_seed"},
    "models/classifiers/architectures.py": {"uses torch.manual_seed"},
    "models/classifiers/classifier.py": {"imports pathlib", "uses getattr"},
    "models/classifiers/encoded_features.py": {"imports pathlib", "uses torch.manual_seed"},
    "models/classifiers/onnx_export.py": {
        "imports onnx", "imports IMAGES of datalens_service.data.intake.sandbox.encode",
        "imports VECTORS of datalens_service.data.intake.sandbox.encode", "reaches for __name__ of something else",
    },
    "models/classifiers/sizes.py": {"imports ImageSize of datalens_service.data.image_sizes"},
    "models/encoders/__init__.py": {"imports TypeAdapter of pydantic"},
    "models/encoders/base.py": {"imports pathlib"},
    "models/encoders/imagenet_lite0.py": {"imports importlib.util", "imports pathlib", "uses torch.load"},
    "models/encoders/making/export.py": {
        *(f"imports {name}" for name in ("io", "onnx", "pathlib", "warnings")),
        "imports encoder of datalens_service.data.intake.sandbox",
        "imports IMAGES of datalens_service.data.intake.sandbox.encode",
        "imports MOST_BYTES of datalens_service.data.intake.sandbox.encoder",
        *(
            f"imports {name} of datalens_service.data.intake.sandbox.encoder_label"
            for name in ("EncoderLabel", "MOST_LICENSE", "MOST_TITLE")
        ),
        "uses hashlib.file_digest", "uses license", "uses torch.onnx",
    },
    "models/encoders/making/networks.py": {
        "imports torchvision.models.convnext", "imports torchvision.models.resnet", "uses format",
    },
    "models/encoders/making/weights.py": {
        *(f"imports {name}" for name in ("pathlib", "pickle", "safetensors", "safetensors.torch", "zipfile")),
        "uses torch.load",
    },
    "models/encoders/network.py": {"imports encoder of datalens_service.data.intake.sandbox"},
    "models/encoders/onnx_file.py": {
        "imports pathlib", "imports encoder of datalens_service.data.intake.sandbox",
        "imports MOST_FEATURES of datalens_service.data.intake.sandbox.encode",
        "imports EncoderLabel of datalens_service.data.intake.sandbox.encoder_label", "uses getattr",
    },
    "models/generators/denoiser/denoiser.py": {"uses torch.manual_seed"},
    "models/generators/denoiser/public_denoiser.py": {"imports os", "imports pathlib", "imports safetensors.numpy"},
    "models/generators/diffusers_folder.py": {
        "imports Settings of datalens_service.base.settings", "imports importlib.metadata", "imports pathlib",
        "uses hashlib.file_digest",
    },
    "models/generators/diffusers_pipeline.py": {
        "imports PIL", "imports PIL.Image", "imports diffusers", "reaches for __name__ of something else",
    },
    "models/generators/generator.py": {"imports importlib", "imports pathlib", "uses __package__"},
    "models/generators/installed.py": {
        f"imports {name} of datalens_service.base.plugins"
        for name in ("GENERATORS", "find_origin", "list_plugins", "load_plugin")
    },
    "models/generators/pool.py": {"reaches for _moved of something else"},
    "models/linear_taps.py": {"imports contextlib", "uses id"},
    "models/per_record.py": {
        "imports concurrent.futures", "imports contextlib", "reaches for __name__ of something else",
        "uses torch.backends", "uses torch.backends.cudnn", "uses torch.set_num_threads", "uses id",
    },
    "models/released.py": {"imports pathlib", "imports safetensors", "imports safetensors.numpy"},
    "models/public_source.py": {
        "imports EncoderLabel of datalens_service.data.intake.sandbox.encoder_label", "uses license",
    },
    "models/teachers/base.py": {"imports contextlib", "uses torch.set_float32_matmul_precision"},
    "models/teachers/ensemble.py": {"imports pathlib"},
    "models/teachers/tensor_store.py": {f"imports {name}" for name in ("mmap", "os", "shutil", "tempfile", "pathlib")},
}  # fmt: skip
"""Read line by line: files of released models, of public weights, of the operator's public pipelines,
of encoders that the command line makes from public weights, which no contribution calls,
and of teachers too large for memory, which have no name; seeds of networks, within `fork_rng`; an encoder's own
process; threads that end with their gradients; precision and places of weights, which follow from the device and the
network."""


DRIVER = ("driver.py", "registered.py", "wall_rules.py")
"""What makes the releases, what finds plug-ins, and the list that is held to them."""


def reached() -> Iterator[Path]:
    """Modules of methods, and of all that they call but mechanisms, whose lines stand on the page."""
    for room in ("methods", "models"):
        yield from (path for path in (PRODUCT / room).rglob("*.py") if path.name not in DRIVER)


def test_all_that_contributions_call_imports_from_the_list() -> None:
    found = {}
    for path in reached():
        said = {complaint.partition(": ")[2] for complaint in find_complaints(ast.parse(path.read_text()), "none")}
        found |= {path.relative_to(PRODUCT).as_posix(): said} if said else {}
    assert found == REVIEWED


def test_modules_that_a_plug_in_imports_of_its_package_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    package = tmp_path / "walled_shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helpers.py").write_text("import gc\n")
    (package / "unused.py").write_text("import pytest\n")
    (package / "tilted.py").write_text("from . import helpers\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("walled_shop.tilted")
    assert list(find_complaints_of_modules(module)) == ["walled_shop.helpers, line 1: imports gc"]


COUNT = VectorSum(num_groups=1, dimensions=1, count_weight=64, noise_stddev=20_000)
PLAN = Plan(releases=(PlannedRelease(mechanism=COUNT, count=2),))


def dataset(seed: int = 0, brightness: int = 200) -> Dataset:
    images = np.random.default_rng(seed).integers(0, brightness, (30, 4, 4, 1), dtype=np.uint8)
    schema = Schema(channels=1, height=4, width=4, class_names=("a", "b"), num_units=30)
    return Dataset(schema, Split(images, np.arange(30) % 2), None, b"k" * 32)


def zeros(rows: Rows, seen: Any) -> GroupedVectors:
    count = len(rows.labels)
    return GroupedVectors(np.zeros((count, 1)), np.zeros(count, dtype=np.int64), rows.units)


def handles(vaults: Vaults) -> list[Any]:
    dealing, place = Dealing([range(2)], 1, 2, 0), Place("cpu", None, SINGLE_PROCESS)
    return [
        vaults.records,
        vaults.records.map(zeros, None),
        UnitRecords(vaults.records, "cpu"),
        PrivateShards(vaults.records, dealing, place, zeros, None),
    ]


def reachable(start: object) -> Iterator[object]:
    """Whatever is referred to from an object, but for modules and types."""
    found, kept = [start], {id(start)}
    for one in found:
        yield one
        for other in gc.get_referents(one):
            plain = isinstance(other, type | type(os) | type(zeros) | dict) and "__name__" in dir(other)
            is_namespace = isinstance(other, dict) and "__builtins__" in other
            if id(other) not in kept and not plain and not is_namespace:
                kept.add(id(other))
                found.append(other)


@pytest.mark.parametrize("place", range(4))
def test_a_handle_has_no_reference_to_records_even_when_it_was_asked_of(place: int) -> None:
    vaults = Vaults(dataset())
    handle = handles(vaults)[place]
    vaults.of(handle)
    vaults.of(vaults.records).prepare()
    for one in reachable(handle):
        assert not isinstance(one, np.ndarray | torch.Tensor | Vault | Vaults)
    with pytest.raises(AttributeError):
        operator.attrgetter("_vault._read")(handle)


def test_a_handle_of_ones_own_leads_nowhere() -> None:
    class Own(PrivateRecords):
        def release(self, *arguments: Any, **others: Any) -> Any:
            raise AssertionError("it was given account and noise")

    vaults = Vaults(dataset())
    for handle in (PrivateRecords(dataset().schema), Own(dataset().schema), UnitRecords(Own(dataset().schema), "cpu")):
        with pytest.raises(WallBroken, match="a handle"):
            vaults.release(handle, COUNT, zeros, None, step=0, account=MemoryAccount(10**30), noise=NoiseSource())


def filled_base(rows: Rows, seen: Any) -> GroupedVectors:
    rows.values.base.fill(9)
    return zeros(rows, seen)


def filled_below(rows: Rows, seen: Any) -> GroupedVectors:
    below = rows.values
    while isinstance(below.base, np.ndarray):
        below = below.base
    memoryview(below.base)[0] = 9
    return zeros(rows, seen)


def unlocked(rows: Rows, seen: Any) -> GroupedVectors:
    rows.values.flags.writeable = True
    return zeros(rows, seen)


def subtracted(rows: Rows, seen: Any) -> GroupedVectors:
    torch.from_numpy(rows.values).sub_(1)
    return zeros(rows, seen)


def halved(rows: Rows, seen: Any) -> np.ndarray:
    return rows.values / 2


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("way", [filled_base, filled_below, unlocked])
def test_records_and_what_they_are_mapped_to_are_not_written_to(way: Callable[..., Any], mapped: bool) -> None:
    vault = Vaults(dataset())
    handle = vault.records.map(halved, None) if mapped else vault.records
    vault.of(handle).prepare()
    before = vault.of(handle)._read().values.copy()
    with pytest.raises(ContributionFailed):
        vault.of(handle).answer(way, None)
    np.testing.assert_array_equal(vault.of(handle)._read().values, before)


def test_a_tensor_that_writes_to_records_ends_its_process() -> None:
    """Here that of the question; without the setting that of the job."""
    vault = Vaults(dataset(), Apart())
    with pytest.raises(ContributionFailed):
        vault.of(vault.records).answer(subtracted, None)


class Kept:
    """What a contribution may keep something in, in the end."""

    number = 0.0
    variable: ContextVar[float] = ContextVar("kept", default=0.0)
    numbers: list[float] = []  # noqa: RUF012


@lru_cache
def cached(_name: str) -> list[float]:
    return [0.0]


def defaulted(kept: list[float] = [0.0]) -> list[float]:  # noqa: B006
    return kept


def _keep_in_tensor(value: float) -> None:
    BUFFER.fill_(value)


BUFFER = torch.zeros(1)


class Bag:
    """Released, and no copy of itself."""

    number = 0.0

    def __deepcopy__(self, memo: Any) -> "Bag":
        return self


CARRIERS: dict[str, tuple[Callable[[float], Any], Callable[[], float]]] = {
    "a class attribute": (partial(setattr, Kept, "number"), lambda: Kept.number),
    "a list of the module": (lambda value: Kept.numbers.append(value), lambda: sum(Kept.numbers)),
    "a cache": (lambda value: cached("").append(value), lambda: sum(cached(""))),
    "a default argument": (lambda value: defaulted().append(value), lambda: sum(defaulted())),
    "an attribute of a function": (partial(setattr, zeros, "kept"), lambda: getattr(zeros, "kept", 0.0)),
    "a tensor of the module": (_keep_in_tensor, lambda: float(BUFFER)),
    "the seed of torch": (lambda value: torch.manual_seed(int(value)), lambda: float(torch.rand(()))),
    "the seed of numpy": (lambda value: np.random.seed(int(value)), lambda: float(np.random.random())),
    "the seed of Python": (lambda value: random.seed(int(value)), random.random),
    "the environment": (lambda value: os.environ.update(KEPT=str(value)), lambda: float(os.environ.get("KEPT", "0"))),
    "a context variable": (Kept.variable.set, Kept.variable.get),
    "a logger": (
        lambda value: logging.getLogger("kept").setLevel(1 + int(value)), lambda: float(logging.getLogger("kept").level)
    ),
    "the precision of torch": (
        lambda value: torch.set_printoptions(precision=int(value) % 9),
        lambda: float(torch._tensor_str.PRINT_OPTS.precision),
    ),
    "the working folder": (
        lambda value: os.chdir("/" if value else "."), lambda: float(str(Path.cwd()) == "/")
    ),
}  # fmt: skip
"""How a private number is kept, and how it is read again: a function for each."""


def keeping(rows: Rows, carrier: str) -> GroupedVectors:
    CARRIERS[carrier][0](float(rows.values.mean()))
    return zeros(rows, None)


def keeping_in_bag(rows: Rows, bag: Bag) -> GroupedVectors:
    bag.number = float(rows.values.mean())
    return zeros(rows, None)


class Keeping(Method):
    """Asks, and then looks where its contribution may have kept something."""

    facts = Moments.facts
    name: Literal["keeping"] = "keeping"
    carrier: str

    def plan(self, schema: Schema, units: int) -> Plan:
        return PLAN

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        yield Ask(records, COUNT, keeping, self.carrier)
        FOUND.append(CARRIERS[self.carrier][1]())
        bag = Bag()
        yield Ask(records, COUNT, keeping_in_bag, bag)
        FOUND.append(bag.number)
        return Outcome(None)  # type: ignore[arg-type]


FOUND: list[float] = []


def found(carrier: str, brightness: int, *, apart: bool) -> list[float]:
    FOUND.clear()
    method, inputs = Keeping(carrier=carrier), RunInputs(TrainingRandomness(0), ExecutionOptions(apart=apart))
    training = Training(method, PLAN, dataset(brightness=brightness), MemoryAccount(10**30), inputs)
    while training.look() is not None:
        training.step(NoiseSource())
    return list(FOUND)


@pytest.fixture
def undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the carriers change is set back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT", "0")
    state, numbers, precision = torch.get_rng_state(), np.random.get_state(), torch._tensor_str.PRINT_OPTS.precision
    random_state = random.getstate()
    yield
    torch.set_rng_state(state)
    np.random.set_state(numbers)
    random.setstate(random_state)
    torch.set_printoptions(precision=precision)


def test_a_private_number_is_carried_nowhere_by_a_process_of_its_own(undisturbed: None) -> None:
    """In this process each of them is: that is what the gate compares, and the setting ends."""
    for carrier in CARRIERS:
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        apart = found(carrier, 200, apart=True)
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        assert found(carrier, 90, apart=True) == apart, carrier
        assert found(carrier, 200, apart=False) != apart, carrier


def warning(rows: Rows, seen: Any) -> GroupedVectors:
    warnings.warn(f"{rows.values.mean()}", stacklevel=1)
    np.array([1.0]) / 0
    return zeros(rows, seen)


def erring(rows: Rows, seen: Any) -> GroupedVectors:
    np.seterr(all="call")
    np.seterrcall(lambda *_: Kept.numbers.append(float(rows.values.mean())))
    return zeros(rows, seen)


def test_warnings_and_settings_of_numpy_end_with_a_question() -> None:
    vault, before = Vaults(dataset()), (np.geterr(), np.geterrcall())
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for contribution in (warning, erring):
            account = MemoryAccount(10**30)
            vault.release(vault.records, COUNT, contribution, None, step=0, account=account, noise=NoiseSource())
    assert heard == []
    assert (np.geterr(), np.geterrcall()) == before


def objects(rows: Rows, seen: Any) -> GroupedVectors:
    return zeros(rows, seen)._replace(values=np.array([Bag()] * len(rows.labels), dtype=object))


def ending(rows: Rows, seen: Any) -> GroupedVectors:
    os._exit(3)


@pytest.mark.parametrize("contribution", [objects, ending])
def test_from_a_process_of_its_own_come_arrays_alone(contribution: Callable[..., Any]) -> None:
    vault = Vaults(dataset(), Apart())
    with pytest.raises(ContributionFailed):
        vault.of(vault.records).answer(contribution, None)


def thick(rows: Rows, seen: Any) -> GroupedVectors:
    values = torch.from_numpy(rows.values.reshape(len(rows.labels), -1).copy()).double()
    return zeros(rows, seen)._replace(values=(values @ values.T @ values).mean(dim=1, keepdim=True).numpy())


@pytest.mark.parametrize("calls", [HERE, Apart()])
def test_a_process_of_its_own_does_not_wait_for_threads_of_its_parent(calls: Calls) -> None:
    """Torch has started them by the time of the fork."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.rand(800, 800) @ torch.rand(800, 800)
        torch.rand(1_000_000).sum()
        made = Vaults(dataset(), calls)
        assert made.of(made.records).answer(thick, None).values.shape == (30, 1)
    finally:
        torch.set_num_threads(threads)
