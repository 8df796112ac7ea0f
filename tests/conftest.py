"""Databases for tests: an SQLite file always, a private PostgreSQL cluster where its binaries are installed."""

import atexit
import functools
import gc
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import sqlalchemy
import structlog
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from datalens_service.base import logs
from datalens_service.base.parsing import PrivacyParameter, decimal_text
from datalens_service.jobs import build_report
from datalens_service.privacy import recomputation
from datalens_service.proof import proof_verification
from datalens_service.store import database as store
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from deployments.deployment import Deployment
from deployments.postgresql import TEMPLATE, Cluster, roomy_memory
from disks import SmallDisk, small_disk
from fast import pytest_addoption, pytest_configure, pytest_runtest_call, pytest_runtest_setup  # noqa: F401 (hooks of pytest)
from other_programs import find_program, programs_are_looked_for  # noqa: F401 (a fixture)

# Test processes share the cores, and sums of float32 differ in their last bits with the number of threads.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
# Tests that run graphs in this process report nothing to the makers of onnxruntime.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

PATIENCE = 240


def _show_whole(number: PrivacyParameter, spec: str) -> str:
    assert not spec, f"ε, δ and μ are shown as they are, not rounded by the format {spec!r}"
    return decimal_text(number)


# Programs of others may format them as they like; this product shows each in one way.
PrivacyParameter.__format__ = _show_whole  # type: ignore[method-assign, assignment]

TESTS = Path(__file__).parent
BEGIN_EARLY = (
    "privacy_gate",
    "docs",
    "browser",
    "contract",
    "cli",
    "extensions",
    "workers",
    "test_benchmarks.py",
    "test_examples.py",
    "test_notebooks.py",
    "jobs",
)
"""Parts with files that take minutes, or wait for processes: at the end of a run, they would leave cores idle."""

# How long an example takes says nothing on a busy machine. The same examples in every run; `scripts/soak` has others.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="DATALENS_STATE_MACHINE_HISTORIES" not in os.environ,
)
hypothesis.settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once() -> Iterator[None]:
    """Each database under test has engines of its own, for each of which SQLAlchemy would compile every statement."""
    create_engine, compiled = store.create_engine, LRUCache(5000)

    def create(*arguments: Any, **options: Any) -> sqlalchemy.Engine:
        engine = create_engine(*arguments, **options)
        engine._compiled_cache = compiled
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "create_engine", create)
        for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
            patch.setattr(dialect, "__hash__", lambda dialect: hash(type(dialect)))
            patch.setattr(dialect, "__eq__", lambda dialect, other: type(dialect) is type(other))
        yield


@pytest.fixture(scope="session", autouse=True)
def epsilons_are_recomputed_once() -> Iterator[None]:
    """Most jobs of tests make the same releases, whose second opinion takes a third of such a job's time."""
    compose, excess = recomputation.composed_epsilon, recomputation.SampledReleases.excess_over
    compose, excess = functools.cache(compose), functools.cache(excess)

    def composed(releases: Iterable[recomputation.GaussianReleases], delta: float) -> float:
        # Raises where a test has taken the library away.
        recomputation.pld_accountant()
        return compose(tuple(releases), delta)

    with pytest.MonkeyPatch.context() as patch:
        for user in (build_report, proof_verification):
            patch.setattr(user, "composed_epsilon", composed)
        patch.setattr(recomputation.SampledReleases, "excess_over", lambda *draws: excess(*draws))
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    find_program("initdb")
    # Not pytest's folder: the path of a Unix socket must stay below 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dlpg", dir=roomy_memory()))
    cluster = Cluster(folder)
    cluster.start()
    try:
        template = Database(cluster.new_database())
        template.migrate()
        template.dispose()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "datalens.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    database.dispose()
    return path


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """A service that starts in this process keeps its files to itself, and would leave that to later tests."""
    os.umask(0o022)
    yield
    os.umask(0o022)


@pytest.fixture(autouse=True)
def usual_logs() -> None:
    """A command that runs in this process sets the level of the log, and would leave that to later tests."""
    structlog.contextvars.clear_contextvars()
    logs.configure("info")


@pytest.fixture(autouse=True)
def patient_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a lock or a connection may come later than a service would wait for it."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", PATIENCE)
    monkeypatch.setattr(store, "_POOL_SECONDS", PATIENCE)
    monkeypatch.setattr(
        store, "_POSTGRESQL_OPTIONS", f"-c lock_timeout={PATIENCE}s -c idle_in_transaction_session_timeout={PATIENCE}s"
    )


@pytest.fixture
def seeded_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise in every run: for tests of what can be done with a release, not of its noise."""
    drawn = np.random.default_rng(0).bytes
    monkeypatch.setattr(os, "urandom", drawn)
    # Of `secrets`, which draws keys of shards.
    monkeypatch.setattr(random, "_urandom", drawn)


@pytest.fixture
def store_path() -> Iterator[Path]:
    """A folder for databases and logs, in memory where there is room."""
    with tempfile.TemporaryDirectory(prefix="dlstore", dir=roomy_memory()) as folder:
        yield Path(folder)


@pytest.fixture
def sqlite_database(sqlite_template: Path, store_path: Path) -> Iterator[Database]:
    """A migrated SQLite database with a ledger log."""
    shutil.copy(sqlite_template, store_path)
    yield from _opened(f"sqlite:///{store_path / 'datalens.db'}", store_path)


@pytest.fixture
def postgresql_database(postgresql: Cluster, store_path: Path) -> Iterator[Database]:
    """A migrated PostgreSQL database with a ledger log."""
    url = postgresql.new_database(TEMPLATE)
    yield from _opened(url, store_path)
    postgresql.execute(f"DROP DATABASE {sqlalchemy.make_url(url).database} WITH (FORCE)")


@pytest.fixture
def local(sqlite_database: Database, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment on SQLite, without a broker."""
    deployment = Deployment(sqlite_database, tmp_path)
    yield deployment
    deployment.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Looking for garbage takes a tenth of all time: what is imported and collected stays, and tests leave little."""
    gc.disable()
    collected = yield
    gc.freeze()
    # Some libraries complain of what is left when the interpreter ends.
    atexit.register(gc.unfreeze)
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    return collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest first."""
    turns = {part: turn for turn, part in enumerate(BEGIN_EARLY)}
    items.sort(key=lambda item: turns.get(item.path.relative_to(TESTS).parts[0], len(turns)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `both_databases` run on PostgreSQL as well: where its SQL, locks or triggers are others."""
    if "database" in metafunc.fixturenames:
        kinds: list[Any] = ["sqlite"]
        if metafunc.definition.get_closest_marker("both_databases"):
            kinds.append(pytest.param("postgresql", marks=pytest.mark.postgres))
        metafunc.parametrize("database", kinds, indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """A database of the kind that `pytest_generate_tests` chose."""
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small disk of its own, to be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as mounted:
        yield mounted


@pytest.fixture
def reopen(database: Database) -> Generator[Callable[[], Database]]:
    """Further connections to the same database, as another process would have."""
    opened: list[Database] = []

    def open_again() -> Database:
        opened.append(Database(database.url, database.log))
        return opened[-1]

    yield open_again
    for other in opened:
        other.dispose()


def _opened(url: str, folder: Path) -> Iterator[Database]:
    database = Database(url, ChargeLog(folder / "ledger.log"))
    yield database
    database.dispose()
