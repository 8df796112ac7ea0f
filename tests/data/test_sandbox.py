"""The process that reads uploads: confined, killed in time, and not believed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from datalens_service.base.errors import InvalidDataset, StoreUnavailable
from datalens_service.data.intake.sandbox import exchange, sandbox
from datalens_service.data.intake.sandbox.confinement import FORBIDDEN
from datalens_service.data.intake.sandbox.sandbox import Confinement, Refused, decode
from other_programs import find_program
from tests.case_files import MAKERS, case_path

from .hostile import CANARY, CORPUS
from .uploads import IMAGES, LABELS, UPLOADS, folder, write_zip

CALLS = Path(__file__).with_name("system_calls.txt")
"""What readers ask the kernel of x86-64 for."""
GENEROUS = Confinement(4 * 2**30, 480)
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of the confinement is Linux's")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir()
    return path


def probe(scratch: Path, action: str) -> str:
    """What a confined process gets from `action`: its result, the name of the exception, or its end by the kernel."""
    code = f"""
        import ctypes, os, resource, signal, socket, subprocess, sys, threading
        from pathlib import Path
        from datalens_service.data.intake.sandbox.confinement import confine
        confine(Path({str(scratch)!r}), memory_bytes=2**30, cpu_seconds=20, file_bytes=2**20)
        try:
            print({action})
        except BaseException as error:
            print(type(error).__name__)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=sandbox._environment(scratch)
    )
    return "killed" if done.returncode == -signal.SIGSYS else done.stdout.strip()


@linux
@pytest.mark.parametrize(
    "action",
    [
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', 9))",
        "os.execv('/bin/true', ['true'])",
        "subprocess.run(['/bin/true'])",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "signal.pidfd_send_signal(0, 0)",
        "ctypes.CDLL(None).tgkill(os.getppid(), os.getppid(), 0)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
        "os.sched_setaffinity(os.getppid(), {0})",
        "ctypes.CDLL(None).unshare(0x10000000)",
    ],
)
def test_what_a_confined_process_is_killed_for(scratch: Path, action: str) -> None:
    assert probe(scratch, action) == "killed"


@linux
@pytest.mark.parametrize(
    "action",
    [
        "open('/tmp/datalens-probe', 'w')",
        "os.mkdir('/tmp/datalens-probe')",
        "os.symlink('/etc/passwd', '/tmp/datalens-probe')",
        "os.unlink('/etc/hostname')",
        "open('/etc/passwd')",
        "os.listdir('/tmp')",
        "open(f'/proc/{os.getppid()}/environ')",
        # A data folder may lie in the checkout, which is on `sys.path`.
        "open(Path(sys.modules['datalens_service'].__file__).parents[1] / 'pyproject.toml')",
    ],
)
def test_which_files_a_confined_process_does_not_get(scratch: Path, action: str) -> None:
    assert probe(scratch, action) == "PermissionError"


@linux
def test_a_reader_that_is_taken_over_dies_and_its_upload_is_refused(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of Pillow's decoder, within the real program."""
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(
        "import socket\nfrom PIL import Image\nImage.open = lambda *_, **__: socket.socket()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{planted}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(Refused, match="Reading the file needs more"):
        decode(UPLOADS["image_folder"](tmp_path / "upload"), scratch, GENEROUS)


READ_ALL = """
    import sys
    from functools import partial
    from pathlib import Path
    from datalens_service.data.intake.reading import choose_decoder
    from datalens_service.data.preparation_settings import PrepareSettings
    from datalens_service.data.intake.reading_choices import AS_IT_IS, ReadingChoices
    from datalens_service.data.intake.sandbox.decode import RecordsRequest, read_records
    from datalens_service.data.intake.sandbox.exchange import ReadingOutcome, attempt, serve
    uploads, folder = map(Path, sys.argv[1:])
    prepared = ReadingChoices(preparation=PrepareSettings(width=8, height=8), skip_unreadable=True, ignore_groups=True)
    def read_all(decoders):
        for number, path in enumerate(sorted(uploads.iterdir())):
            choices, decoder = decoders[number % 2]
            own = folder / str(number)
            own.mkdir()
            request = RecordsRequest(path=path, folder=own, choices=choices, memory_bytes=2**32, cpu_seconds=600)
            attempt(partial(read_records, request, decoder))
        return ReadingOutcome()
    request = RecordsRequest(path=uploads, folder=folder, choices=AS_IT_IS, memory_bytes=2**32, cpu_seconds=600)
    serve(request, partial(read_all, [(choices, choose_decoder(choices)) for choices in (AS_IT_IS, prepared)]))
"""


@linux
def test_readers_make_no_other_system_calls_than_those_of_the_list(tmp_path: Path, scratch: Path) -> None:
    strace = find_program("strace")
    uploads, trace = tmp_path / "uploads", tmp_path / "trace"
    uploads.mkdir()
    for number, write in enumerate(UPLOADS.values()):
        write(uploads / f"sound-{number}")
    for number, hostile in enumerate(CORPUS.values()):
        (uploads / f"hostile-{number}").write_bytes(hostile.make())
    for name in MAKERS:
        if case_path(name).is_file():
            shutil.copyfile(case_path(name), uploads / name)
    command = [sys.executable, "-c", textwrap.dedent(READ_ALL), str(uploads), str(scratch)]
    subprocess.run(
        [strace, "-f", "-qq", "-o", str(trace), *command], check=True, env=sandbox._environment(scratch), cwd=scratch
    )
    confined = trace.read_text().partition("PR_SET_SECCOMP")[2]
    made = set(re.findall(r"^\d+ +(\w+)\(", confined, re.MULTILINE))
    assert (scratch / exchange.OUTCOME).exists()
    assert made <= set(CALLS.read_text().split())


def test_no_call_of_the_list_is_forbidden() -> None:
    assert not set(CALLS.read_text().split()) & set(FORBIDDEN)


def test_what_it_can(scratch: Path) -> None:
    assert probe(scratch, f"open({str(scratch / 'a')!r}, 'w').write('x')") == "1"
    assert probe(scratch, "sum(range(10))") == "45"
    assert probe(scratch, "__import__('datalens_service.base.clock').__name__") == "datalens_service"
    assert probe(scratch, "__import__('numpy').__name__") == "numpy"
    assert probe(scratch, "threading.Thread(target=print).start()") == "None"


def test_memory_is_limited(scratch: Path) -> None:
    assert probe(scratch, "len(bytearray(2**30))") == "MemoryError"


def test_secrets_do_not_reach_it(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATALENS_DATABASE_URL", "postgresql://u:canary-secret@h/d")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    assert "canary-secret" not in probe(scratch, "dict(os.environ)")
    assert "DATALENS" not in probe(scratch, "dict(os.environ)")


@pytest.mark.parametrize("kind", ["npz", "image_folder in a tar.gz", "parquet", "webdataset"])
def test_records_come_out_as_they_went_in(tmp_path: Path, scratch: Path, kind: str) -> None:
    found = decode(UPLOADS[kind](tmp_path / "upload"), scratch, GENEROUS)
    assert found.format == kind.partition(" ")[0]
    counts = found.counts.for_owner()
    assert (counts.train, counts.classes, counts.duplicates) == (12, {"0": 4, "1": 4, "2": 4}, 0)
    order = np.argsort(LABELS, kind="stable") if kind.startswith("image_folder") else slice(None)
    np.testing.assert_array_equal(found.upload.train.images[..., 0], IMAGES[order])


@pytest.mark.parametrize("name", ["zip bomb", "NPZ of pickled objects", "Parquet: pages that inflate", "tar.gz bomb"])
def test_hostile_files_are_refused_there_too(
    tmp_path: Path, scratch: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "upload").write_bytes(CORPUS[name].make())
    with pytest.raises(Refused, match=CORPUS[name].says):
        decode(tmp_path / "upload", scratch, Confinement(2**30, 120))
    assert not (tmp_path / CANARY).exists()
    assert not (scratch / CANARY).exists()


def test_all_bad_files_are_named(tmp_path: Path, scratch: Path) -> None:
    contents = folder()
    damaged = sorted(contents)[::3]
    contents |= dict.fromkeys(damaged, b"none")
    with pytest.raises(Refused, match="cannot be decoded") as caught:
        decode(write_zip(tmp_path / "upload", contents), scratch, GENEROUS)
    assert [file.name for file in caught.value.bad_files] == damaged
    assert (caught.value.bad_count, caught.value.checked) == (len(damaged), 12)
    assert not any(name in caught.value.detail for name in damaged)


def slow(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Read with another program than ours."""
    monkeypatch.setattr(sandbox.sys, "executable", sys.executable)
    popen = subprocess.Popen

    def another(_command: list[str], **options: object) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", what], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(sandbox.subprocess, "Popen", another)


def test_what_takes_too_long_is_killed(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = UPLOADS["npz"](tmp_path / "upload")
    slow(monkeypatch, "import time; time.sleep(600)")
    with pytest.raises(Refused, match="took too long"):
        decode(path, scratch, Confinement(2**30, 1))


PARTS = 64
MANY_FILES = f"""
import time
for number in range({PARTS}):
    with open(f"part-{{number}}", "wb") as file:
        file.write(bytes(2**16))
    time.sleep(0.05)
time.sleep(600)
"""


def measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_takes_the_room_that_is_spared_is_killed(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small files pass the limit on each of them."""
    disk = SimpleNamespace(disk_usage=lambda folder: SimpleNamespace(free=PARTS * 2**16 - measure(folder)))
    monkeypatch.setattr(sandbox, "shutil", disk)
    path = UPLOADS["npz"](tmp_path / "upload")
    slow(monkeypatch, MANY_FILES)
    with pytest.raises(Refused, match="need more room"):
        decode(path, scratch, Confinement(2**32, 480, file_bytes=2**20, spare_bytes=PARTS * 2**15))
    assert PARTS * 2**15 < measure(scratch) <= PARTS * 2**16


def test_a_file_that_unpacks_to_more_than_its_room_is_refused_and_the_rest_of_the_disk_stays(
    tmp_path: Path, scratch: Path
) -> None:
    blank = np.zeros((40_000, 28, 28), dtype=np.uint8)
    np.savez_compressed(tmp_path / "upload.npz", images=blank, labels=np.arange(40_000) % 2)
    assert (tmp_path / "upload.npz").stat().st_size < 2**20
    with pytest.raises(Refused, match="need more room"):
        decode(tmp_path / "upload.npz", scratch, Confinement(2**32, 480, file_bytes=2**22, spare_bytes=1))
    assert measure(scratch) <= 2**22


def test_stopping_ends_it_without_blaming_the_file(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = UPLOADS["npz"](tmp_path / "upload")
    slow(monkeypatch, "import time; time.sleep(600)")
    with pytest.raises(StoreUnavailable):
        decode(path, scratch, GENEROUS, stopping=lambda: True)


@pytest.mark.parametrize(
    "said", ["not JSON", '{"format": "pickle"}', '{"surplus": 1}', '{"format": "npz", "counts": null}']
)
def test_a_process_that_was_taken_over_is_not_believed(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    path = UPLOADS["npz"](tmp_path / "upload")
    slow(monkeypatch, f"open({exchange.OUTCOME!r}, 'w').write({said!r})")
    with pytest.raises(Refused, match="breaks the program"):
        decode(path, scratch, GENEROUS)


def test_records_it_leaves_are_checked(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim without records, and records that contradict their schema."""
    good = decode(UPLOADS["npz"](tmp_path / "upload"), scratch, GENEROUS)
    schema = json.loads((good.records / "schema.json").read_text())
    (good.records / "schema.json").write_text(json.dumps({**schema, "num_units": 99}))
    slow(monkeypatch, "pass")
    with pytest.raises(InvalidDataset):
        decode(tmp_path / "upload", scratch, GENEROUS)
