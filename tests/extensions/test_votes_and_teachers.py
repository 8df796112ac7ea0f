"""A vote, and a teacher, is one new file with its lines in one registry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from datalens_service.mechanisms import AnyMechanism

from .extended import ExtendedProduct

VOTE = '''
"""Signs of all coordinates above a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

from pydantic import Field

from datalens_service.privacy.randomness import Integers
from datalens_service.mechanisms.votes import Directions, VoteMechanism, VoteParameters, clip_and_sanitize

if TYPE_CHECKING:
    import torch


@final
class PlainSigns(VoteMechanism):
    """Formal guarantee: a row has entries in {-1, 0, +1}, so its squared length is at most the dimensions."""

    name: Literal["plain_signs"] = "plain_signs"
    bar: float = Field(ge=0)

    @classmethod
    def example_parameters(cls) -> VoteParameters:
        """All coordinates vote."""
        return PlainSignsParameters(bar=0)

    def label(self) -> str:
        """Name in the ledger."""
        return "votes.plain_signs"

    @property
    def row_bound_squared(self) -> int:
        """All of them."""
        return self.dimensions

    def encode(self, gradients: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """int8 signs."""
        import torch

        clipped = clip_and_sanitize(gradients, self.clip)
        return (clipped.sign() * (clipped.abs() > self.bar)).to(torch.int8)

    def decode(self, noisy: Integers) -> Directions:
        """Direction per image."""
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

from datalens_service.methods.voting.teachers.base import TeacherParameters, TeacherRequest

if TYPE_CHECKING:
    from datalens_service.models.teachers.base import TeacherBackend


class BrightTeacher(TeacherParameters):
    """One parameter of its own."""

    name: Literal["bright"] = "bright"
    gain: float = Field(default=1.0, gt=0)

    def build(self, request: TeacherRequest) -> TeacherBackend:
        """Kernel teachers with louder gradients."""
        from datalens_service.models.teachers.kernel import KernelTeachers

        gain = self.gain

        class Bright(KernelTeachers):
            def image_gradients(self, *arguments):
                return (gain * block for block in super().image_gradients(*arguments))

        return Bright(request.num_teachers, request.records, request.device, basis=request.basis,
                      active=request.active, partitions=request.partitions)
'''

JOBS = """
import json, sys
import numpy as np
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.run import run
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


@pytest.fixture(scope="module")
def jobs(product: ExtendedProduct) -> list[dict[str, Any]]:
    """What a job with the vote and one with the teacher were charged."""
    made: list[dict[str, Any]] = json.loads(product.run("-c", JOBS, json.dumps([VOTING, TEACHING])))
    return made


def test_a_vote_with_a_parameter_of_its_own(jobs: list[dict[str, Any]]) -> None:
    done, _ = jobs
    (release,) = done["releases"]
    assert (release["name"], release["bar"]) == ("plain_signs", 0.25)
    assert [label for _, label, _ in done["charges"]] == ["votes.plain_signs"] * 2
    assert sum(units for *_, units in done["charges"]) == done["planned"]
    with pytest.raises(ValidationError, match="plain_signs"):
        TypeAdapter(AnyMechanism).validate_python(release)


def test_a_new_mechanism_is_held_to_the_contract(product: ExtendedProduct) -> None:
    chosen = ["-k", "plain_signs or PlainSigns or own_under_its_name or every_registered"]
    report = product.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/mechanisms/test_contract.py", *chosen)
    assert int(report.split(" passed")[0].split()[-1]) >= 10


def test_a_teacher_with_a_parameter_of_its_own(jobs: list[dict[str, Any]]) -> None:
    _, done = jobs
    assert [label for _, label, _ in done["charges"]] == ["votes.topagg"] * 2
