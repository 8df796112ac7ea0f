"""Teachers in processes of their own, for runs of thousands of convolutional teachers on the cores of one machine.

Each process keeps parts of 80 teachers. It takes the optimiser steps and the answer of a teacher one after the other,
while the weights are in the processor's cache. Weights beyond a limit of memory lie in files; the file of the next part
is read while a part trains.
"""

from __future__ import annotations

import math
import mmap
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datalens_service.data.dataset import Schema
from datalens_service.models.adam import AdamState
from datalens_service.models.teachers import ensemble, networks
from datalens_service.models.teachers.base import TeacherBackend
from datalens_service.models.teachers.ensemble import TeacherEnsemble, _cross_entropy
from datalens_service.models.teachers.tensor_store import GIBIBYTE, total_bytes

TEACHERS_OF_A_PART: Final = 80
_AT_ONCE: Final = 2
"""Teachers whose products are computed together."""
_WAITING: Final = 2
"""Optimiser steps that wait for a question."""


class TrainingStep(NamedTuple):
    """What teachers learn from in one step."""

    real: Tensor
    """uint8 (teachers, B, d)."""
    classes: Tensor
    """int64 (teachers, B)."""
    images: Tensor
    """float32 (teachers, S, d), synthetic; (1, S, d) if all teachers see the same."""
    labels: Tensor
    """int64 (teachers, S) or (1, S)."""

    def select(self, rows: slice | Tensor) -> TrainingStep:
        """Return the step of some teachers."""
        return TrainingStep(*(value[rows] if len(value) > 1 else value for value in self))


class Question(NamedTuple):
    """Synthetic images that teachers are asked about."""

    images: Tensor
    """float32 (S, d)."""
    labels: Tensor
    """int64 (S,)."""


class Part:
    """At most 80 teachers, in memory or in a file."""

    def __init__(self, teachers: range, in_file: bool, build: dict[str, Any]) -> None:
        active = build["active"][teachers.start : teachers.stop]
        memory_gib = 0.0 if in_file else float("inf")
        self.ensemble = TeacherEnsemble(
            **build | {"active": active, "partitions": [teachers], "memory_gib": memory_gib}
        )
        self.count, self._steps = len(teachers), 0

    def read_ahead(self) -> None:
        """Ask for the file without waiting for it."""
        if self.ensemble._file is not None:
            self.ensemble._file._mapping.madvise(mmap.MADV_WILLNEED)

    def learn(self, steps: Sequence[TrainingStep], question: Question | None, answers: Tensor) -> None:
        """Take optimiser steps; then put gradients by the images of a question into `answers` (teachers, S, d)."""
        for first in range(0, self.count, _AT_ONCE):
            block = slice(first, min(first + _AT_ONCE, self.count))
            for number, step in enumerate(steps):
                self.ensemble._steps = self._steps + number
                self._train(block, step.select(block))
            if question is not None:
                classes = self.ensemble._one_hot(question.labels).expand(block.stop - block.start, -1, -1)
                answers[block] = self.ensemble._gradient_block(block, question.images, classes)
            self.ensemble._drop(block)
        self._steps += len(steps)

    def _train(self, block: slice, step: TrainingStep) -> None:
        """Take a step of a block, whose teachers see synthetic images of their own."""
        teachers, real = self.ensemble, step.real.shape[1]
        adam_state = teachers._adam_state.block(block)
        leaves = {name: value.detach().requires_grad_() for name, value in adam_state.parameters.items()}
        images, labels = (value.expand(len(step.real), *value.shape[1:]) for value in (step.images, step.labels))
        own = torch.cat([step.real.to(torch.float32).div_(255), images], dim=1)
        classes = teachers._one_hot(torch.cat([step.classes, labels], dim=1))
        features = teachers._network.first(leaves, own, own.new_empty(0, own.shape[2]), classes)
        teachers._network.real = real  # type: ignore[attr-defined]
        logits = teachers._network.rest(leaves, features, classes)
        gradients = torch.autograd.grad(_cross_entropy(logits, real), list(leaves.values()))
        teachers._apply_adam(adam_state, dict(zip(leaves, gradients, strict=True)), teachers._idle[block])


class TeacherProcesses(TeacherBackend):
    """Takes the place of `TeacherEnsemble`, where all teachers are asked about the same images.

    Attributes:
        processes: As many as there are cores; no more are started than there are parts.
        memory_gib: Weights and moments of all teachers together that stay in memory, in GiB.
    """

    in_basis = False
    large = True
    processes = 2
    memory_gib = 16.0

    def __init__(
        self, architecture: str, num_teachers: int, schema: Schema, device: str, seed: int, **build: Any
    ) -> None:
        self.num_teachers, self.local, self.device = num_teachers, range(num_teachers), torch.device(device)
        self._dimensions = schema.dimensions
        self._build = build | {
            "architecture": architecture, "num_teachers": num_teachers, "schema": schema, "device": device, "seed": seed
        }  # fmt: skip
        starts = range(0, num_teachers, TEACHERS_OF_A_PART)
        self._parts = [range(start, min(start + TEACHERS_OF_A_PART, num_teachers)) for start in starts]
        self.processes = min(self.processes, len(self._parts))
        self._connections: list[Connection] = []
        self._answers = torch.empty(0)

    def train_step(
        self, real_images: Tensor, real_labels: Tensor, synthetic_images: Tensor, synthetic_labels: Tensor
    ) -> None:
        """Have every teacher take a step. Synthetic images are (S, d), or (teachers, S, d)."""
        if not self._connections:
            self._start(synthetic_images.shape[-2])
        images = synthetic_images.reshape(-1, *synthetic_images.shape[-2:])
        step = TrainingStep(real_images, real_labels, images, synthetic_labels.reshape(len(images), -1))
        for process, connection in enumerate(self._connections):
            connection.send(_as_arrays(step.select(torch.cat([torch.tensor(part) for part in self._of(process)]))))

    def image_gradients(
        self, synthetic_images: Tensor, synthetic_labels: Tensor, teachers: slice = slice(None)
    ) -> Iterator[Tensor]:
        """Yield gradients of one part after the other, while the processes go on."""
        for connection in self._connections:
            connection.send(_as_arrays(Question(synthetic_images, synthetic_labels)))
        for number, part in enumerate(self._parts):
            self._connections[number % self.processes].recv()
            yield self._answers[part.start : part.stop]

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return nothing: such a run is not continued."""
        return {}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Do nothing."""

    def _of(self, process: int) -> list[range]:
        return self._parts[process :: self.processes]

    def _start(self, images: int) -> None:
        """Fork, so that processes have what was changed in this one."""
        self._answers = torch.zeros(self.num_teachers, images, self._dimensions).share_memory_()
        context = multiprocessing.get_context("fork")
        for process in range(self.processes):
            here, there = context.Pipe()
            context.Process(target=self._serve, args=(process, here, there), daemon=True).start()
            self._connections.append(here)

    def _serve(self, process: int, here: Connection, connection: Connection) -> None:
        """Train, and answer, until the run ends."""
        # Or a process would wait for a run that was killed, since it holds that end, too.
        for end_of_the_run in (*self._connections, here):
            end_of_the_run.close()
        torch.set_num_threads(1)
        teachers = self._of(process)
        parts = [Part(part, self._in_file(part), self._build) for part in teachers]
        waiting: list[TrainingStep] = []
        while True:
            try:
                message: TrainingStep | Question = _mapped(torch.from_numpy, connection.recv())
            except EOFError:
                return
            question = message if isinstance(message, Question) else None
            if question is not None or len(waiting) == _WAITING:
                for number, part in enumerate(parts):
                    parts[(number + 1) % len(parts)].read_ahead()
                    first = number * TEACHERS_OF_A_PART
                    steps = [step.select(slice(first, first + part.count)) for step in waiting]
                    part.learn(steps, question, self._answers[teachers[number].start : teachers[number].stop])
                    if question is not None:
                        connection.send(number)
                waiting.clear()
            if isinstance(message, TrainingStep):
                waiting.append(message)

    def _in_file(self, part: range) -> bool:
        """Spread the parts that memory has no place for evenly among those of each process."""
        shapes = networks.ARCHITECTURES[self._build["architecture"]](self._build["schema"]).shapes()
        needed = self.num_teachers * len(AdamState._fields) * total_bytes([*shapes.values()])
        in_files = max(0.0, 1 - self.memory_gib * GIBIBYTE / needed)
        place = self._parts.index(part) // self.processes
        return math.ceil(place * in_files) < math.ceil((place + 1) * in_files)


def _mapped(change: Callable[[Any], Any], message: TrainingStep | Question) -> Any:
    """Change every array of a message."""
    return type(message)(*map(change, message))


def _as_arrays(message: TrainingStep | Question) -> Any:
    return _mapped(Tensor.numpy, message)


def use_processes(count: int, memory_gib: float) -> None:
    """Have the next run's teachers in processes."""
    TeacherProcesses.processes, TeacherProcesses.memory_gib = count, memory_gib
    ensemble.TeacherEnsemble = TeacherProcesses  # type: ignore[assignment]
