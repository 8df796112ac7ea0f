"""What do readers make of damaged files? `python -m benchmarks.fuzz --seconds 1800 --keep FOLDER`.

Files of every format are changed at random, within archives too, and read as the service reads them: uploads, images to
label, encoders, generators, proofs. A refusal in words is right. Any other exception, a process that dies, and twenty
seconds of the processor for one file are failures; their files are kept. Prints JSON.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import ROOT, provenance
from benchmarks.kept_results import print_result
from datalens_service.base.errors import DatalensError
from datalens_service.data import read_with_notices
from datalens_service.data.intake.readers.unlabelled import read_unlabelled
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.sandbox.encode import EncodeRequest, encode
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.proof.release_verification import verify_path
from datalens_service.services.generator_import import read_generator

_PREPARED: Final = ReadingChoices(
    preparation=PrepareSettings(width=8, height=8), skip_unreadable=True, ignore_groups=True
)
_LARGEST_SEED: Final = 2**18
_MEMORY_BYTES: Final = 4 * 2**30
_SECONDS_OF_A_FILE: Final = 20
_FILES_OF_A_PROCESS: Final = 1000
_MOST_CHANGES: Final = 8
_NUMBERS: Final = (b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 8, b"-1", b"9" * 20)

Seeds = dict[str, list[bytes]]


def _encode(path: Path) -> None:
    content = path.read_bytes()
    request = EncodeRequest(
        folder=path.parent, memory_bytes=1, cpu_seconds=1, graph_bytes=len(content), shape=(1, 8, 8, 3)
    )
    encode(request, content, bytes(8 * 8 * 3))


READERS: Final[dict[str, tuple[Callable[[Path], object], ...]]] = {
    "images": (
        read_with_notices,
        lambda path: read_with_notices(path, _PREPARED),
        lambda path: read_unlabelled(path, DEFAULT_LIMITS, 1000),
    ),
    "encoder": (_encode,),
    "generator": (read_generator,),
    "proof": (verify_path,),
}


def make_seeds(folder: Path) -> Seeds:
    """Sound and hostile files of the tests, and files as people make them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "api")]
    from api_builders import gaussian

    from tests.case_files import MAKERS, case_path
    from tests.data.hostile import CORPUS
    from tests.data.uploads import UPLOADS
    from tests.example_proof import EXAMPLE_PROOF, SCHEMA
    from tests.models.onnx_files import onnx_encoder

    images = [write(folder / "upload").read_bytes() for write in UPLOADS.values()]
    images += [hostile.make() for hostile in CORPUS.values()]
    images += [path.read_bytes() for path in map(case_path, MAKERS) if path.is_file()]
    gaussian(SCHEMA).save(folder / "generator")
    return {
        "images": [image for image in images if len(image) <= _LARGEST_SEED],
        "encoder": [onnx_encoder()],
        "generator": [(folder / "generator").read_bytes()],
        "proof": [json.dumps(EXAMPLE_PROOF).encode()],
    }


def change(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    """The file with a few changes; of an archive, with changes to a file in it, half of the time."""
    with suppress(zipfile.BadZipFile, OSError, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError):
        if rng.random() < 0.5 and zipfile.is_zipfile(io.BytesIO(content)):
            return _change_member(rng, content, seeds)
        if rng.random() < 0.5 and content.startswith(b"\x1f\x8b"):
            return gzip.compress(change(rng, gzip.decompress(content)[: 2**24], seeds))
    changed = bytearray(content)
    for _ in range(rng.randint(1, _MOST_CHANGES)):
        _change_once(rng, changed, seeds)
    return bytes(changed)


def _change_member(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        entries = archive.infolist()
        if not entries or sum(entry.file_size for entry in entries) > 2**24:
            raise ValueError
        chosen = rng.choice(entries)
        for entry in entries:
            data = archive.read(entry)
            made.writestr(entry.filename, change(rng, data, seeds) if entry is chosen else data)
    return packed.getvalue()


def _change_once(rng: random.Random, content: bytearray, seeds: Sequence[bytes]) -> None:
    place, length = rng.randint(0, len(content)), rng.choice((1, 2, 4, 8, 64, 1024))
    part = slice(place, place + length)
    match rng.randrange(6):
        case 0:
            content[part] = rng.randbytes(len(content[part]))
        case 1:
            number = rng.choice(_NUMBERS)
            content[place : place + len(number)] = number
        case 2:
            del content[part]
        case 3:
            content[place:place] = content[part] * rng.choice((1, 2, 100))
        case 4:
            other = rng.choice(seeds)
            start = rng.randint(0, len(other))
            content[place:place] = other[start : start + length]
        case _ if content:
            content[min(place, len(content) - 1)] ^= 1 << rng.randrange(8)


def read_many(seeds: Seeds, folder: Path, keep: Path, seed: int) -> None:
    """In a process of its own: change and read files; what went wrong is in `keep`, counts in `folder`."""
    rng = random.Random(seed)  # noqa: S311 (changes of files)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # Of what changes files; readers have their own filter.
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for _ in range(_FILES_OF_A_PROCESS):
        kind = rng.choice(("images",) * 9 + ("encoder", "generator", "proof"))
        content = change(rng, rng.choice(seeds[kind]), seeds[kind])
        (folder / "current").write_bytes(content)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS_OF_A_FILE)
        counts[kind] += 1
        try:
            with warnings.catch_warnings(action="error"):
                rng.choice(READERS[kind])(folder / "current")
        except (DatalensError, MemoryError):
            counts["refused"] += 1
        except Exception as error:  # noqa: BLE001 (what is looked for)
            _keep(keep, kind, content, error)
            counts["failed"] += 1
        signal.setitimer(signal.ITIMER_PROF, 0)
        (folder / "counts").write_text(json.dumps(counts))


def _keep(keep: Path, kind: str, content: bytes, error: Exception) -> None:
    """One file for each place in the program."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    name = f"{kind}-{type(error).__name__}-{Path(where.filename).stem}-{where.lineno}"
    if not (keep / name).exists():
        (keep / name).write_bytes(content)
        (keep / f"{name}.txt").write_text("".join(traceback.format_exception(error)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of the processor")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the files that fail")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args(arguments)
    given.keep.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dlfuzz") as folder:
        counts = _fuzz(Path(folder), given.keep, given.seconds, given.seed)
    print_result(
        {**provenance(), "seed": given.seed, **counts, "kept": sorted(path.name for path in given.keep.iterdir())}
    )
    return 0


def _fuzz(folder: Path, keep: Path, seconds: float, seed: int) -> dict[str, Any]:
    seeds, counts = make_seeds(folder), Counter[str]()
    while _used_seconds() < seconds:
        process = get_context("fork").Process(target=read_many, args=(seeds, folder, keep, seed + counts["processes"]))
        process.start()
        process.join()
        counts.update(json.loads((folder / "counts").read_text()))
        counts["processes"] += 1
        sys.stderr.write(f"{_used_seconds():.0f} s: {dict(counts)}\n")
        if process.exitcode:
            counts["died"] += 1
            (folder / "current").rename(keep / f"died-{-process.exitcode}-{seed + counts['processes']}")
    return {"processor_seconds": round(_used_seconds()), **counts}


def _used_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
