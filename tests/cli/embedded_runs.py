"""What `datalens train` has left in a folder, and a run of it that stands still before it ends."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.service import PATIENCE
from datalens_service.jobs.embedded_run import open_embedded_run
from datalens_service.proof.hash_chain import SPENDS, Entry
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import account_summary, chain_verification
from deployments.fork_servers import start_program
from deployments.forked_programs import ForkedProgram
from deployments.hold import Hold


def votes(teachers: int = 8, batch: int = 4, steps: int = 20) -> tuple[str, ...]:
    """Options of a run with short steps, to be stopped between any two."""
    parameters = (
        f"num_teachers={teachers}", "images_per_step=4", "top_k=8", "threshold=none", f"teacher_batch={batch}",
        "teacher_warmup_steps=2", f"steps={steps}",
    )  # fmt: skip
    chosen = ("--method", "datalens", "--synthetic-images", "50", "--no-evaluation", "--epsilon", "2", "--out", "out")
    return (*chosen, *(part for one in parameters for part in ("--set", one)))


def job_and_spends() -> tuple[Job, list[Entry]]:
    """The only job of the folder `out`, and what its verified journal says was spent.

    A charge that only the ledger log knew of after a kill counts, too.
    """
    with open_embedded_run(Path("out")) as embedded_run, embedded_run.database.session() as session:
        [job] = jobs.list_jobs(embedded_run.database).items
        chain_verification.verify_chain(session, job.dataset_id)
        entries = account_summary.entries(session, job.dataset_id)
        return job, [entry for entry in entries if entry.kind in SPENDS]


@contextmanager
def held(command: list[str], folder: Path, step: int, after: str = "store") -> Iterator[ForkedProgram]:
    """A program that trains into `out` of a folder, once it was charged for a step, behind which it stands still."""
    hold = Hold(folder)
    environment = {**os.environ, **hold.environment, "OMP_NUM_THREADS": "1"}
    with hold.behind(step, after), (folder / "said").open("wb") as said:
        process = start_program(command, environment, said.fileno(), said.fileno(), folder)
        log, until = folder / "out" / "private" / "ledger.log", time.monotonic() + PATIENCE
        while not (log.exists() and log.read_bytes().count(b"\n") > step):
            assert process.poll() is None, "ended before it was held"
            assert time.monotonic() < until
            time.sleep(0.01)
        yield process
