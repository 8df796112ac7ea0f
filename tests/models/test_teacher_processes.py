"""Teachers in processes of a benchmark learn and answer as those of one process do."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.teacher_processes import TEACHERS_OF_A_PART, TeacherProcesses
from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from tests.repository import ROOT

COUNT = 2 * TEACHERS_OF_A_PART + 3
PARTS = [range(start, min(start + TEACHERS_OF_A_PART, COUNT)) for start in range(0, COUNT, TEACHERS_OF_A_PART)]
SCHEMA = Schema(channels=1, height=8, width=8, class_names=("a", "b"), num_units=COUNT * 4)
ACTIVE = torch.arange(COUNT) != 5


def answers(teachers: TeacherEnsemble | TeacherProcesses) -> list[Tensor]:
    """After four steps, which are more than wait for a question, and after one more."""
    drawn = torch.Generator().manual_seed(1)
    real = torch.randint(0, 256, (COUNT, 4, SCHEMA.dimensions), dtype=torch.uint8, generator=drawn)
    classes = torch.randint(2, (COUNT, 4), generator=drawn)
    images, labels = torch.rand(3, SCHEMA.dimensions, generator=drawn), torch.tensor([0, 1, 1])
    given = []
    for steps in (4, 1):
        for _ in range(steps):
            teachers.train_step(real, classes, images, labels)
        given.append(torch.cat([block.clone() for block in teachers.image_gradients(images, labels)]))
    return given


def compare() -> None:
    """In a process of its own: a fork of one with other threads may wait for ever."""
    torch.set_num_threads(1)
    build: dict[str, Any] = {"active": ACTIVE, "partitions": PARTS, "learning_rate": 1e-3}
    together = answers(TeacherEnsemble("conv", COUNT, SCHEMA, "cpu", 3, **build))
    TeacherProcesses.memory_gib = 1e-6
    apart = answers(TeacherProcesses("conv", COUNT, SCHEMA, "cpu", 3, **build))
    for expected, found in zip(together, apart, strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(found, expected, rtol=0.1, atol=float(expected.abs().max()) / 20)
        assert not found[5].any()


def be_killed() -> None:
    """In a process of its own, whose output ends when the processes of its teachers have ended, too."""
    answers(TeacherProcesses("conv", COUNT, SCHEMA, "cpu", 3, active=ACTIVE))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("checked", "status"), [("compare", 0), ("be_killed", -signal.SIGKILL)])
def test_teachers_in_processes_answer_as_in_one_and_end_with_their_run(checked: str, status: int) -> None:
    command = [sys.executable, "-c", f"from tests.models import test_teacher_processes as here; here.{checked}()"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == status, ended.stderr


def test_parts_in_files_are_spread_evenly_over_processes() -> None:
    teachers = TeacherProcesses("conv", 40 * TEACHERS_OF_A_PART, SCHEMA, "cpu", 3, active=ACTIVE)
    weights = sum(
        value[0].numel() for value in TeacherEnsemble("conv", 1, SCHEMA, "cpu", 3)._adam_state.parameters.values()
    )
    teachers.memory_gib = 0.71 * 3 * 4 * weights * teachers.num_teachers / 2**30
    in_files = [[teachers._in_file(part) for part in teachers._of(process)] for process in range(2)]
    assert [sum(parts) for parts in in_files] == [6, 6]
    assert not any(one and following for one, following in zip(in_files[0], in_files[0][1:], strict=False))
