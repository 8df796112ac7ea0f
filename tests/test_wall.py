"""Behind the wall a method names no type that holds private records, and has no way around it."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from datalens_service.base.errors import BudgetExceeded, ContributionFailed
from datalens_service.base.progress import Tell, be_silent
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import GradientSum, Mechanism, VectorSum, VoteMechanism
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import Mapped, PrivateRecords, Rows, Vault, WallBroken
from datalens_service.mechanisms.private_shards import PrivateShards
from datalens_service.mechanisms.unit_records import UnitRecords, UnitRows, UnitVault
from datalens_service.methods.base import Method
from datalens_service.methods.registered import AnyMethod
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from privacy_gate.contribution_cases import CASES

PRODUCT = Path(__file__).parents[1] / "datalens_service"
METHODS = PRODUCT / "methods"
WALLED = sorted(
    [
        *(
            path
            for family in ("sums", "last_layer", "descent", "public", "voting")
            for path in (METHODS / family).rglob("*.py")
        ),
        METHODS / "public_start.py",
    ]
)
PUBLIC_NAMES = {"dataset": {"Schema", "Images", "Labels"}, "shard_batches": {"ShardBatch"}}
"""Of modules of `data`: none of them reads records."""
FIRST_ARGUMENTS = {"Rows", "UnitRows", "Shards", "TeacherBackend"}
"""By which what the wall calls is known."""
PARTS_OF_THE_DOOR = {"exact_sum", "noisy_sum", "discrete_gaussian"}
"""Of mechanisms and of noise: one of a method's own would be handed what others contribute, or add nothing to it."""
MODULES_OF_THE_DRIVER = {"datalens_service.privacy.budget", "datalens_service.methods.driver"}
NAMES_OF_THE_DRIVER = {"Account", "NoiseSource"}
"""With which a script could make a release itself."""
WAYS_AROUND = {"getattr", "setattr", "vars", "globals", "locals", "eval", "exec", "open", "__import__"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in WALLED:
        yield str(path.relative_to(METHODS)), ast.parse(path.read_text())


def complaints(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {name.name}" for name in node.names if name.name.startswith("datalens_service"))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("datalens_service.data"):
            names = {name.name for name in node.names}
            if not names <= PUBLIC_NAMES.get((node.module or "").rpartition(".")[2], set()):
                yield f"imports {sorted(names)} of {node.module}"
        if isinstance(node, ast.ImportFrom):
            all_of_it = node.module in MODULES_OF_THE_DRIVER
            refused = [name.name for name in node.names if all_of_it or name.name in NAMES_OF_THE_DRIVER]
            yield from (f"imports {name}" for name in refused)
            yield from (f"imports {name.name}" for name in node.names if name.name.startswith("_"))
        if isinstance(node, ast.Try | ast.With) and any(isinstance(part, ast.Yield) for part in ast.walk(node)):
            yield "asks where it could catch an error"
        if isinstance(node, ast.FunctionDef) and node.name in PARTS_OF_THE_DOOR:
            yield f"defines {node.name}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not _is_own(node.value):
            yield f"reaches for {node.attr} of something else"
        if isinstance(node, ast.Name) and node.id in WAYS_AROUND:
            yield f"uses {node.id}"


def _is_own(value: ast.expr) -> bool:
    """`self` and `super()`; a named tuple's own `_replace` is public."""
    called = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super"
    return called or (isinstance(value, ast.Name) and value.id in {"self", "cls"})


def contributions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.args.args and ast.unparse(_annotation(node)) in FIRST_ARGUMENTS:
            yield node


def _annotation(node: ast.FunctionDef) -> ast.expr:
    return node.args.args[0].annotation or ast.Constant(None)


def test_no_module_behind_the_wall_names_what_holds_records() -> None:
    found = {name: list(complaints(tree)) for name, tree in trees()}
    allowed = {"reaches for _replace of something else", "reaches for _asdict of something else"}
    assert {name: [said for said in all_of_it if said not in allowed] for name, all_of_it in found.items()} == {
        name: [] for name in found
    }


@pytest.mark.parametrize(
    "line",
    [
        "from datalens_service.data.dataset import Split",
        "from datalens_service.data.intake.stored_dataset import load_dataset",
        "from datalens_service.data.shard_batches import ShardSampler",
        "from datalens_service.mechanisms.private_shards import _TeacherVault",
        "import datalens_service.data.dataset",
        "rows = records._vault.rows()",
        "vars(records)",
        "from datalens_service.privacy.budget import UnchargedAccount",
        "from datalens_service.privacy.randomness import NoiseSource",
        "from datalens_service.methods.driver import Training",
        "records._release(mechanism, contribution, None, step=0, account=account, noise=noise)",
        "try:\n    released = yield ask\nexcept Exception:\n    released = 0",
        "def exact_sum(self, contributions): kept.append(contributions)",
    ],
)
def test_a_way_around_is_complained_of(line: str) -> None:
    assert list(complaints(ast.parse(line)))


def test_contributions_write_to_nothing_but_their_own_names() -> None:
    """Else one might keep a private number in its module."""
    for name, tree in trees():
        for function in contributions(tree):
            stored = [
                node
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
            ]
            spread = [node for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal)]
            assert not stored + spread, f"{name}: {function.name}"


def test_what_a_run_asks_is_among_the_contributions_of_its_module() -> None:
    """Each is found by its first argument, so that the rule above holds for all of them."""
    asked = {
        ast.unparse(argument)
        for _, tree in trees()
        for node in ast.walk(tree)
        for argument in _functions(node)
        if isinstance(argument, ast.Name)
    }
    known = {function.name for _, tree in trees() for function in contributions(tree)}
    # `choose_question` says which of two it is.
    assert asked - {"contribution"} <= known
    assert len(asked) >= 20
    assert len(known) >= 20


def _functions(node: ast.AST) -> list[ast.expr]:
    """What a call hands to the wall to be called with records."""
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Name) and node.func.id == "Ask":
        return node.args[2:3]
    return node.args[:1] if isinstance(node.func, ast.Attribute) and node.func.attr in {"map", "learn"} else []


def test_every_method_of_the_package_is_behind_the_wall() -> None:
    for kind in AnyMethod.__args__:
        assert issubclass(kind, Method)
        assert Path(inspect.getfile(kind)) in WALLED


def test_the_capability_shows_the_schema_alone() -> None:
    public = {name for name in dir(handle()) if not name.startswith("_")}
    assert public == {"schema", "made", "map"}


def test_the_capability_for_units_shows_where_it_computes() -> None:
    assert {name for name in dir(UnitRecords(handle(), "cpu")) if not name.startswith("_")} == {"records", "device"}


COUNT = VectorSum(num_groups=1, dimensions=1, count_weight=64, noise_stddev=20_000)
KEPT: list[np.ndarray] = []


def records(count: int = 30) -> Vault:
    images = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 1), dtype=np.uint8)
    schema = Schema(channels=1, height=4, width=4, class_names=("a", "b"), num_units=count)
    return Vault.from_dataset(Dataset(schema, Split(images, np.arange(count) % 2), None, b"k" * 32))


def handle() -> PrivateRecords:
    return PrivateRecords(records().schema)


def mapped(vault: Vault, function: object, tell: Tell = be_silent) -> Vault:
    return vault.mapped(Mapped(PrivateRecords(vault.schema), function, None, tell))


def brightness(rows: Rows, longest: dict[str, float]) -> GroupedVectors:
    values = rows.values.reshape(len(rows.labels), -1).mean(axis=1, keepdims=True) / longest["is"]
    return GroupedVectors(values, np.zeros(len(values), dtype=np.int64), rows.units)


def written(rows: Rows, longest: dict[str, float]) -> GroupedVectors:
    longest["is"] = float(rows.values.max())
    return brightness(rows, longest)


def renamed(rows: Rows, longest: dict[str, float]) -> GroupedVectors:
    return brightness(rows, longest)._replace(units=np.zeros(len(rows.units), dtype=np.int64))


def shortened(rows: Rows, longest: dict[str, float]) -> GroupedVectors:
    return GroupedVectors(*(array[1:] for array in brightness(rows, longest)))


def overwritten(rows: Rows, longest: dict[str, float]) -> GroupedVectors:
    rows.values[:] = 0
    return brightness(rows, longest)


def halved(rows: Rows, _released: None) -> np.ndarray:
    KEPT.append(rows.values)
    return rows.values / 2


def asked(contribution: object, longest: dict[str, float] | None = None, of: Vault | None = None) -> np.ndarray:
    released = longest or {"is": 255.0}
    return (of or records()).release(
        COUNT, contribution, released, step=0, account=MemoryAccount(10**30), noise=NoiseSource()
    )


def test_a_question_is_answered_with_a_charged_noisy_sum() -> None:
    account = MemoryAccount(10**30)
    answer = records().release(COUNT, brightness, {"is": 255.0}, step=0, account=account, noise=NoiseSource())
    assert account.charged_units == COUNT.cost()
    np.testing.assert_array_equal(answer, COUNT.decode(account.replay(0)))


def test_records_are_sealed_but_for_an_open_question() -> None:
    private = records()
    for vault in (private, mapped(private, halved)):
        with pytest.raises(WallBroken, match="charged sum"):
            vault.rows()
    asked(brightness, of=private)
    with pytest.raises(WallBroken):
        private.rows()


def test_what_is_mapped_is_computed_at_the_first_question_and_kept() -> None:
    KEPT.clear()
    private = mapped(records(), halved)
    assert not KEPT
    for _ in range(2):
        asked(brightness, of=private)
    assert len(KEPT) == 1


def test_a_contribution_takes_nothing_along() -> None:
    private, number = records(), 3.0

    def closure(rows: Rows, _released: object) -> GroupedVectors:
        return brightness(rows, {"is": number})

    class Run:
        def contribution(self, rows: Rows, released: dict[str, float]) -> GroupedVectors:
            return brightness(rows, released)

    for refused in (closure, Run().contribution, lambda rows, released: brightness(rows, released), len):
        with pytest.raises(WallBroken, match="function of a module"):
            asked(refused, of=private)


def test_a_contribution_leaves_nothing_behind_in_what_it_was_given() -> None:
    longest = {"is": 1000.0}
    asked(written, longest)
    assert longest == {"is": 1000.0}


def test_what_a_contribution_says_of_units_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[GroupedVectors] = []
    monkeypatch.setattr(VectorSum, "exact_sum", lambda self, rows: (seen.append(rows), np.zeros((1, 2), np.int64))[1])
    asked(renamed)
    np.testing.assert_array_equal(seen[0].units, np.arange(30))


def test_a_contribution_drops_no_record() -> None:
    with pytest.raises(WallBroken, match="one row for every record"):
        asked(shortened)


def test_records_are_not_written_to() -> None:
    private = records()
    before = private._read().values.copy()
    with pytest.raises(ContributionFailed):
        asked(overwritten, of=private)
    np.testing.assert_array_equal(private._read().values, before)


def failing(rows: Rows, _released: object) -> GroupedVectors:
    raise ArithmeticError(rows.values.mean())


def lacking(rows: Rows, _released: object) -> GroupedVectors:
    raise MemoryError(rows.values.nbytes)


def unit_failing(rows: UnitRows, _released: object) -> Iterator[torch.Tensor]:
    yield rows.images[:1].flatten(1)[:, :1].float()
    raise ArithmeticError(rows.images.float().mean())


def failure(private: Vault | UnitVault, mechanism: Mechanism, contribution: object) -> Exception:
    """What comes out of a question whose contribution fails; it was charged."""
    account = MemoryAccount(10**30)
    with pytest.raises((ContributionFailed, MemoryError)) as raised:
        private.release(mechanism, contribution, {"is": 1.0}, step=0, account=account, noise=NoiseSource())
    assert account.charged_units == mechanism.cost()
    assert account.replay(0) is None
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)
    return raised.value


def test_what_a_contribution_raises_is_charged_and_carries_nothing() -> None:
    private = records()
    texts = {
        str(failure(private, COUNT, failing)),
        str(failure(mapped(private, failing), COUNT, brightness)),
        str(failure(UnitVault(private, "cpu"), SUM, unit_failing)),
    }
    assert len(texts) == 1
    assert not any(character.isdigit() for character in texts.pop())
    assert failure(private, COUNT, lacking).args == ()


def test_a_question_that_is_not_paid_for_is_not_computed() -> None:
    KEPT.clear()
    with pytest.raises(BudgetExceeded):
        records().release(COUNT, halved, None, step=0, account=MemoryAccount(1), noise=NoiseSource())
    assert KEPT == []


SUM = GradientSum(dimensions=1, clip_norm=1.0, noise_stddev=300_000)


def unit_brightness(rows: UnitRows, step: dict[str, float]) -> Iterator[torch.Tensor]:
    for image in rows.images:
        yield image.flatten().float().mean().reshape(1, 1) / 255 * step["is"]


def unit_shortened(rows: UnitRows, step: dict[str, float]) -> Iterator[torch.Tensor]:
    yield from list(unit_brightness(rows, step))[1:]


def unit_overwritten(rows: UnitRows, step: dict[str, float]) -> Iterator[torch.Tensor]:
    step["is"] = float(rows.images.max())
    rows.images.zero_()
    yield from unit_brightness(rows, step)


def released_brightness(private: UnitVault, contribution: object, step: dict[str, float]) -> np.ndarray:
    return private.release(SUM, contribution, step, step=0, account=MemoryAccount(10**30), noise=NoiseSource())


def test_units_are_summed_and_sealed_but_for_an_open_question() -> None:
    private, factor = UnitVault(records(), "cpu"), {"is": 1.0}
    before = sum(float(chunk.gradients) for chunk in private.answer(unit_brightness, factor))
    released_brightness(private, unit_overwritten, factor)
    assert factor == {"is": 1.0}
    assert sum(float(chunk.gradients) for chunk in private.answer(unit_brightness, factor)) == before > 0
    with pytest.raises(WallBroken, match="charged sum"):
        private._of(None)
    with pytest.raises(WallBroken, match="one row for every unit"):
        released_brightness(private, unit_shortened, factor)
    with pytest.raises(WallBroken, match="function of a module"):
        released_brightness(private, lambda rows, step: unit_brightness(rows, step), factor)


def test_a_batch_has_the_units_whose_coins_are_true() -> None:
    chosen = np.arange(30) % 3 == 0
    chunks = UnitVault(records(), "cpu").answer(unit_brightness, {"is": 1.0}, chosen)
    assert [int(unit) for chunk in chunks for unit in chunk.units] == np.flatnonzero(chosen).tolist()


def lines_to_read() -> list[set[Path]]:
    """The files that docs/mechanisms/wall.md lists: those of every release, then those of each kind."""
    page = (PRODUCT.parent / "docs" / "mechanisms" / "wall.md").read_text()
    listed = page.split("## The lines that can break it")[1].split("Not among")[0].split("\n- ")[1:]
    return [{PRODUCT / name for name in re.findall(r"`((?:\w+/)?\w+\.py)`", one)} for one in listed]


def lines_of_code(source: str) -> int:
    """Without docstrings, comments and empty lines, none of which does anything."""
    said = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    return sum(
        number not in said and line.strip() not in ("", "#") and line.strip()[0] != "#" for number, line in lines
    )


def count_code(files: set[Path]) -> int:
    return sum(lines_of_code(path.read_text()) for path in files)


ELSEWHERE = {
    *("blocks", "poisson_sampling", "partitioned_passes", "dominance", "loss_curves", "recomputation", "sampled"),
    *("dataset", "von_mises_fisher", "unit_records", "private_shards"),
}
"""Prices of batches, which `datalens verify` computes with other code; public shapes; what only directions draw; what
`vaults.py` looks up, which is listed with each kind."""


def test_the_lines_that_can_break_it_are_few_and_all_named() -> None:
    always, *kinds, directions = lines_to_read()
    assert count_code(always.union(*kinds)) < 1_900
    for files in [*kinds, kinds[-1] | directions]:
        assert count_code(always | files) < 1_300
        for path in always | files:
            for room, module in rests_on(path):
                named = PRODUCT / room / f"{module}.py" in always | files
                assert named or module in ELSEWHERE, f"{path.name} rests on {room}/{module}.py"


def rests_on(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        room, _, module = (getattr(node, "module", None) or "").removeprefix("datalens_service.").partition(".")
        if room in ("mechanisms", "privacy", "data"):
            yield room, module


def test_every_mechanism_behind_the_wall_is_among_these_lines() -> None:
    plans = [case.spec.plan(case.dataset(np.random.default_rng(0)).schema) for case in CASES]
    releases = [release for plan in plans for release in plan.all_releases()]
    needed = {priced(type(release.mechanism)) for release in releases} | {PrivateRecords, PrivateShards, UnitRecords}
    assert {Path(inspect.getfile(kind)) for kind in needed} <= set().union(*lines_to_read())


def priced(kind: type[Mechanism]) -> type[Mechanism]:
    """Whose lines the price of a mechanism rests on."""
    return VoteMechanism if issubclass(kind, VoteMechanism) else kind


STATED_BY_VOTES = {
    "ledger_label", "coordinates", "row_bound_squared", "non_negative", "encode", "decode", "reads_scores",
    "example_parameters", "example_dimensions", "example_tightness",
}  # fmt: skip


@pytest.mark.parametrize("kind", VoteMechanism.__subclasses__(), ids=lambda kind: kind.__name__)
def test_kinds_of_votes_leave_alone_what_guards_and_prices_them(kind: type[VoteMechanism]) -> None:
    """A kind states how long its rows are; that is enforced and priced by `VoteMechanism`, whatever it encodes."""
    fields = set(VoteMechanism.model_fields) | {"model_config", "model_fields"}
    taken = {name for name in vars(kind) if name in dir(VoteMechanism) and not name.startswith(("__", "_abc"))}
    assert taken - fields <= STATED_BY_VOTES


def _as_they_are(rows: Rows, _released: None) -> np.ndarray:
    return rows.values.reshape(len(rows.labels), -1)


def _contribute(rows: Rows, _released: None) -> GroupedVectors:
    return GroupedVectors(rows.values.astype(np.float64), rows.labels, rows.units)


@pytest.mark.parametrize(("records_per_unit", "told"), [(1, [1.0]), (2, [])])
def test_of_records_that_units_have_in_private_numbers_no_progress_is_told(
    records_per_unit: int, told: list[float]
) -> None:
    schema = Schema(
        channels=1, height=4, width=4, class_names=("a",), num_units=4 // records_per_unit,
        records_per_unit=records_per_unit,
    )  # fmt: skip
    units = np.arange(4) // records_per_unit
    train = Split(np.zeros((4, 4, 4, 1), np.uint8), np.zeros(4, np.int64), units)
    heard: list[float] = []
    vault = Vault.from_dataset(Dataset(schema, train, None, b"k" * 32))
    mapped(vault, _as_they_are, heard.append).answer(_contribute, None)
    assert heard == told
