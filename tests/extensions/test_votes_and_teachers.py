"""A vote, and a teacher, is one new file with its lines in one registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from datalens_service.mechanisms import AnyMechanism
from repository import ROOT

VOTE = '''
"""Signs of all coordinates above a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

from pydantic import Field

from datalens_service.privacy.randomness import Integers
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters, zero_rows_that_are_not_finite

if TYPE_CHECKING:
    import torch


@final
class PlainSigns(VoteMechanism):
    """Formal guarantee: a row has entries in {-1, 0, +1}, so its squared length is at most the dimensions."""

    ledger_label: ClassVar[str] = "votes.plain_signs"
    name: Literal["plain_signs"] = "plain_signs"
    bar: float = Field(ge=0)

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        return PlainSignsParameters(bar=0)

    @property
    def row_bound_squared(self) -> int:
        return self.dimensions

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        import torch

        clipped = zero_rows_that_are_not_finite(gradients).clamp(-self.clip, self.clip)
        return (clipped.sign() * (clipped.abs() > self.bar)).to(torch.int8)

    def decode(self, noisy: Integers) -> Directions:
        return self.direction(noisy)


class PlainSignsParameters(VoteParameters):
    """One of its own."""

    mechanism: ClassVar[type[VoteMechanism]] = PlainSigns

    name: Literal["plain_signs"] = "plain_signs"
    bar: float = Field(default=0.0, ge=0)
'''

PROOF = """# Plain signs

**Code**: `PlainSigns`, `datalens_service/mechanisms/plain_signs.py`

## Claim

The squared sensitivity is four times the dimensions.

## Proof

A row is at most √d long.
"""

TEACHER = '''
"""Teachers that pull every image towards the mean of their records of its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from datalens_service.methods.voting.teachers.base import TeacherParameters

if TYPE_CHECKING:
    from datalens_service.models.teachers.base import TeacherBackend


class BrightTeacher(TeacherParameters):
    """One parameter of its own."""

    name: Literal["bright"] = "bright"
    gain: float = Field(default=1.0, gt=0)

    def count_weights(self, schema) -> int:
        return 0

    def build(self, setting, shards) -> TeacherBackend:
        from datalens_service.models.teachers.kernel import KernelTeachers

        gain = self.gain

        class Bright(KernelTeachers):
            def image_gradients(self, *arguments):
                return (gain * block for block in super().image_gradients(*arguments))

        return Bright(setting.num_teachers, shards.batch, shards.device, basis=setting.basis,
                      active=shards.active, partitions=shards.parts)
'''

JOBS = """
import json, sys
import numpy as np
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.training import run
from datalens_service.spec import TrainingSpec

rng, labels = np.random.default_rng(0), np.arange(60) % 2
schema = Schema(channels=1, height=8, width=8, class_names=("a", "b"), num_units=60)
dataset = Dataset(schema, Split(rng.integers(0, 256, (60, 8, 8, 1), dtype=np.uint8), labels), None, b"k" * 32)
method = {"name": "datalens", "num_teachers": 6, "images_per_step": 4, "steps": 2, "z_dim": 4, "threshold": "none"}
done = []
for choice in json.loads(sys.argv[1]):
    spec = TrainingSpec.model_validate({"method": method | choice, "epsilon": 8.0, "delta": 1e-3})
    account = MemoryAccount(spec.limit_units(schema))
    result = run(spec, dataset, account=account)
    releases = [release.mechanism.model_dump() for release in result.plan.releases]
    done.append({"charges": account.charges, "planned": result.plan.cost(), "releases": releases})
print(json.dumps(done))
"""


VOTING = {"teacher": "kernel", "votes": {"name": "plain_signs", "bar": 0.25}}
TEACHING = {"teacher": {"name": "bright", "gain": 2.0, "batch": 3}, "top_k": 8}


class ExtendedProduct:
    """The library and its tests of mechanisms, as somebody who adds a part would have them.

    Args:
        folder: Empty; the copy is made here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "static")
        for part in ("datalens_service", "tests/mechanisms", "tests/privacy_gate", "docs/mechanisms"):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def add(self, file: str, content: str) -> None:
        """Add the file; it must be new."""
        path = self._folder / file
        assert not path.exists()
        path.write_text(content)

    def register(self, registry: str, line: str, **unions: str) -> None:
        """Add an import to a registry, and a member to each of its unions by name."""
        path = self._folder / registry
        docstring, separator, code = path.read_text().partition("\n\n")
        code = f"{line}\n{code}"
        for union, member in unions.items():
            assert f"\n{union} = " in code
            code = code.replace(f"\n{union} = ", f"\n{union} = {member} | ", 1)
        path.write_text(docstring + separator + code)

    def run(self, *command: str) -> str:
        """What a Python command prints.

        Raises:
            AssertionError: It failed; the message is all that it said.
        """
        environment = os.environ | {"PYTHONPATH": f"{self._folder}{os.pathsep}{self._folder / 'tests'}"}
        done = subprocess.run(
            [sys.executable, *command], cwd=self._folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> ExtendedProduct:
    """With the vote and the teacher."""
    made = ExtendedProduct(tmp_path_factory.mktemp("product") / "copy")
    made.add("datalens_service/mechanisms/plain_signs.py", VOTE)
    made.add("docs/mechanisms/plain_signs.md", PROOF)
    made.register(
        "datalens_service/mechanisms/__init__.py",
        "from datalens_service.mechanisms.plain_signs import PlainSigns, PlainSignsParameters",
        AnyVotes="PlainSignsParameters",
        AnyMechanism="PlainSigns",
    )
    made.add("datalens_service/methods/voting/teachers/bright.py", TEACHER)
    made.register(
        "datalens_service/methods/voting/teachers/__init__.py",
        "from datalens_service.methods.voting.teachers.bright import BrightTeacher",
        AnyTeacher="BrightTeacher",
    )
    return made


def test_a_vote_and_a_teacher_with_parameters_of_their_own(product: ExtendedProduct) -> None:
    voting, teaching = json.loads(product.run("-c", JOBS, json.dumps([VOTING, TEACHING])))
    (release,) = voting["releases"]
    assert (release["name"], release["bar"]) == ("plain_signs", 0.25)
    assert [label for _, label, _ in voting["charges"]] == ["votes.plain_signs"] * 2
    assert sum(units for *_, units in voting["charges"]) == voting["planned"]
    assert [label for _, label, _ in teaching["charges"]] == ["votes.topagg"] * 2
    with pytest.raises(ValidationError, match="plain_signs"):
        TypeAdapter(AnyMechanism).validate_python(release)


def test_a_new_mechanism_is_held_to_the_contract(product: ExtendedProduct) -> None:
    chosen = ["-k", "plain_signs or PlainSigns or own_under_its_name or every_registered"]
    report = product.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/mechanisms/test_contract.py", *chosen)
    assert int(report.split(" passed")[0].split()[-1]) >= 8
