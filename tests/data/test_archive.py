import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from datalens_service.base.errors import InvalidDataset, NotFound
from datalens_service.data.intake.untrusted.limits import DEFAULT_LIMITS, Limits
from datalens_service.data.intake.untrusted.zip_archive import open_archive, refusing

from .builders import Contents, write_zip
from .hostile import overlapping, patched


def open_and_read(path: Path, limits: Limits = DEFAULT_LIMITS) -> dict[str, bytes]:
    with open_archive(path, limits) as archive:
        return {entry.filename: archive.head(entry, entry.file_size) for entry in archive.entries}


PATH_LIKE_NAMES = [
    "/etc/passwd",
    "//server/share/a.png",
    "/",
    "..",
    "../a.png",
    "../../a.png",
    "a/../../b.png",
    "a/..",
    "a/../b.png",
    "a/./b.png",
    "a//b.png",
    ".",
    "",
    "a//",
    "C:/a.png",
    "c:a.png",
    "Z:",
    "..\\a.png",
    "\\\\server\\share\\a.png",
    "C:\\a.png",
    "a\\..\\b.png",
    "a.png\x00.exe",
    "a\x00/../b.png",
    "a\nb.png",
    "a\rb.png",
    "a\x1b[2Jb.png",
    "a\x7fb.png",
    "a\u202egnp.exe",
    "a\u2028b.png",
    "x" * 1025,
    "é" * 513,
]


@pytest.mark.parametrize("name", PATH_LIKE_NAMES)
def test_names_are_never_paths(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "a.zip", {"plain/b.png": b"1", name: b"2"})
    with pytest.raises(InvalidDataset, match="acts as a path"):
        open_and_read(path)


def test_names_of_other_programs_are_read_as_they_are_meant(tmp_path: Path) -> None:
    contents = {"./a/1.png": b"1", ".//a/2.png": b"2", "a\\3.png": b"3"}
    read = open_and_read(write_zip(tmp_path / "a.zip", contents))
    assert read == {"a/1.png": b"1", "a/2.png": b"2", "a/3.png": b"3"}


def test_plain_names_are_accepted(tmp_path: Path) -> None:
    contents = {"klasse ä/..b.png": b"1", "a b/c-d_(1).png": b"2", "x" * 1024: b"3"}
    assert open_and_read(write_zip(tmp_path / "a.zip", contents)) == contents


def test_folders_are_not_entries(tmp_path: Path) -> None:
    assert open_and_read(write_zip(tmp_path / "a.zip", {"a/": b"", "a/b": b"1"})) == {"a/b": b"1"}


def test_too_many_entries_are_refused_before_the_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "a.zip", {str(i): b"" for i in range(11)})
    assert len(open_and_read(path, Limits(entries=11))) == 11
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(InvalidDataset, match="at most 10"):
        open_and_read(path, Limits(entries=10))


def test_directory_entries_are_counted_across_read_blocks(tmp_path: Path) -> None:
    # The signature of one entry lies on the border of two blocks, for one of these lengths of padding.
    for padding in range(2**20 - 115, 2**20 - 107):
        path = write_zip(tmp_path / "a.zip", {"a": b"x" * padding, "b": b""}, zipfile.ZIP_STORED)
        with pytest.raises(InvalidDataset, match="at most 1"):
            open_and_read(path, Limits(entries=1))


def test_total_size_is_capped(tmp_path: Path) -> None:
    contents = {"a": bytes(600), "b": bytes(400)}
    path = write_zip(tmp_path / "a.zip", contents)
    assert open_and_read(path, Limits(uncompressed_bytes=1000)) == contents
    with pytest.raises(InvalidDataset, match="more than the 999 bytes"):
        open_and_read(path, Limits(uncompressed_bytes=999))


def test_a_high_ratio_is_refused_only_above_the_free_size(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": bytes(10**6)})
    assert open_and_read(path, Limits(ratio=100, ratio_free_bytes=10**6)) == {"a": bytes(10**6)}
    with pytest.raises(InvalidDataset, match="100 times"):
        open_and_read(path, Limits(ratio=100, ratio_free_bytes=10**6 - 1))


def test_an_entry_that_understates_its_size_is_not_unpacked(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"a": bytes(64 * 2**20)})
    path.write_bytes(patched(path.read_bytes(), b"PK\x01\x02", 24, struct.pack("<L", 1000)))
    tracemalloc.start()
    with pytest.raises(InvalidDataset, match="damaged"):
        open_and_read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(overlapping())
    with pytest.raises(InvalidDataset, match="damaged"), open_archive(path, DEFAULT_LIMITS):
        pytest.fail("the archive was opened")


CONTENTS: Contents = {"a/b.png": b"123" * 50, "a/c.png": bytes(200)}


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", CONTENTS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidDataset, match="damaged or cut off"):
            open_and_read(path)


def test_changed_contents_are_noticed(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", CONTENTS, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"123123", b"124123", 1))
    with pytest.raises(InvalidDataset, match="damaged"):
        open_and_read(path)


def test_refusing_keeps_deliberate_errors_and_hides_the_rest() -> None:
    with pytest.raises(NotFound), refusing("sentence"):
        raise NotFound("deliberate")
    with pytest.raises(InvalidDataset, match=r"^sentence$") as caught, refusing("sentence"):
        raise KeyError("private name")
    assert caught.value.__suppress_context__
