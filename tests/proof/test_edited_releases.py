"""A partner edits the archive of a release: it holds if, and only if, it is file by file what a job released."""

import hashlib
import io
import os
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datalens_service.base.errors import InvalidInput
from datalens_service.base.signatures import PublicKey, public_key
from datalens_service.data.export.release_archive import SUMS, SUMS_SIGNATURE
from datalens_service.proof.release_verification import FILES, verify_path

from .releases import FORGER, IMAGES, KEY, Files, packed, unpacked, write_release

OF_VERSION_1_0_0 = Path(__file__).parents[1] / "store" / "version_1_0_0" / "release.zip"
KEY_OF_VERSION_1_0_0 = "567bb9eaf0c4d077ce94734abf91f458e4d45763e703c9ec107d99b5ea66bded"


class Releases(NamedTuple):
    """Of a job, of another job of the installation, and the first one as a forger would sign it."""

    path: Path
    ours: Files
    others: Files
    forged: Files


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Releases:
    folder = tmp_path_factory.mktemp("releases")
    path = write_release(folder, KEY, seed=0, job_id="job_ours")
    other = write_release(folder, KEY, seed=1, job_id="job_other")
    forged = write_release(folder, FORGER, seed=2, job_id="job_ours")
    return Releases(path, unpacked(path), unpacked(other), unpacked(forged))


@pytest.fixture(autouse=True)
def duplicates_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate name")
        yield


def holds(path: Path, key: PublicKey | None = KEY.public) -> bool:
    """Whether `datalens verify` ends with exit code 0."""
    try:
        return verify_path(path, key).holds
    except InvalidInput:
        return False


def holds_packed(folder: Path, content: bytes, key: PublicKey | None = KEY.public) -> bool:
    path = folder / "edited.zip"
    path.write_bytes(content)
    return holds(path, key)


def write_folder(folder: Path, files: Files) -> Path:
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def with_sums(files: Files) -> Files:
    """With sums of what is there now."""
    kept = [(name, content) for name, content in files if name != SUMS]
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in kept if name != SUMS_SIGNATURE}
    return [*kept, (SUMS, "".join(f"{listed[name]}  {name}\n" for name in sorted(listed)).encode())]


def test_what_was_released_holds_packed_and_unpacked(releases: Releases, tmp_path: Path) -> None:
    assert holds(releases.path)
    assert holds_packed(tmp_path, packed(releases.ours))
    assert holds(write_folder(tmp_path / "folder", releases.ours))
    assert not holds(releases.path, FORGER.public)


def test_an_archive_that_version_1_0_0_handed_out_holds(tmp_path: Path) -> None:
    key = public_key(KEY_OF_VERSION_1_0_0)
    assert holds(OF_VERSION_1_0_0, key)
    assert holds(write_folder(tmp_path, unpacked(OF_VERSION_1_0_0)), key)
    assert not holds(OF_VERSION_1_0_0)


EDITS: dict[str, Callable[[Files, int, Files], Files]] = {
    "deleted": lambda files, at, _: files[:at] + files[at + 1 :],
    "renamed": lambda files, at, _: [*files[:at], (f"{files[at][0]}.old", files[at][1]), *files[at + 1 :]],
    "moved": lambda files, at, _: [*files[:at], (f"below/{files[at][0]}", files[at][1]), *files[at + 1 :]],
    "everything else moved": lambda files, at, _: [
        (name if place == at else f"below/{name}", content) for place, (name, content) in enumerate(files)
    ],
    "copied below": lambda files, at, _: [*files, (f"below/{files[at][0]}", files[at][1])],
    "doubled": lambda files, at, _: [*files, files[at]],
    "doubled with another content": lambda files, at, other: [*files, (files[at][0], other[at][1] + b" ")],
    "hidden behind another content": lambda files, at, other: [(files[at][0], other[at][1] + b" "), *files],
    "doubled in capitals": lambda files, at, _: [*files, (files[at][0].swapcase(), files[at][1])],
    "exchanged": lambda files, at, other: [*files[:at], (files[at][0], other[at][1] + b" "), *files[at + 1 :]],
    "emptied": lambda files, at, _: [*files[:at], (files[at][0], b""), *files[at + 1 :]],
    "named as a path": lambda files, at, _: [*files[:at], (f"./{files[at][0]}", files[at][1]), *files[at + 1 :]],
    "named above": lambda files, at, _: [*files, (f"../{files[at][0]}", files[at][1])],
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("summed", [False, True])
def test_no_file_can_be_edited(releases: Releases, tmp_path: Path, edit: str, summed: bool) -> None:
    for at, (name, _) in enumerate(releases.ours):
        edited = EDITS[edit](releases.ours, at, releases.others)
        edited = with_sums(edited) if summed else edited
        if dict(edited) == dict(releases.ours) and len(edited) == len(releases.ours):
            assert (summed, name) == (True, SUMS)
            continue
        for key in (KEY.public, None):
            assert not holds_packed(tmp_path, packed(edited), key), name


@pytest.mark.parametrize("name", [SUMS, SUMS_SIGNATURE])
def test_images_of_another_job_do_not_hold_once_sums_or_their_signature_are_gone(
    releases: Releases, tmp_path: Path, name: str
) -> None:
    others = dict(releases.others)
    edited = [(kept, others[IMAGES] if kept == IMAGES else content) for kept, content in releases.ours if kept != name]
    for content in (edited, with_sums(edited) if name == SUMS_SIGNATURE else edited):
        assert not holds_packed(tmp_path, packed(content))
        assert not holds_packed(tmp_path, packed(content), None)


def test_an_archive_without_sums_is_a_contradiction_if_a_key_is_given_and_not_checked_without(
    releases: Releases, tmp_path: Path
) -> None:
    without = [one for one in releases.ours if one[0] not in (SUMS, SUMS_SIGNATURE)]
    (tmp_path / "edited.zip").write_bytes(packed(without))
    for path in (tmp_path / "edited.zip", write_folder(tmp_path / "folder", without)):
        for key, status in ((KEY.public, "contradiction"), (None, "not checked")):
            verdict = verify_path(path, key)
            [line] = [line for line in verdict.lines if line.check == FILES]
            assert (line.status, verdict.holds) == (status, False)
            assert f"There is no {SUMS}" in line.finding


def test_sums_of_another_release_are_not_of_this_one(releases: Releases, tmp_path: Path) -> None:
    others = dict(releases.others)
    for foreign in ({SUMS}, {SUMS_SIGNATURE}, {SUMS, SUMS_SIGNATURE}, {SUMS, SUMS_SIGNATURE, IMAGES}, {"privacy.json"}):
        edited = [(name, others[name] if name in foreign else content) for name, content in releases.ours]
        assert not holds_packed(tmp_path, packed(edited)), foreign


@pytest.mark.parametrize(
    "sums", [b"", b"\n", b"\xff", b"0" * 64 + b"  ", b"0" * 64 + b" privacy.json\n", b"0" * 64 + b"  ../privacy.json\n"]
)
def test_sums_that_list_nothing_or_something_else_do_not_hold(releases: Releases, tmp_path: Path, sums: bytes) -> None:
    signed = {"format": "datalens-checksums/1", "file": SUMS, "sha256": hashlib.sha256(sums).hexdigest()}
    edited = [(name, sums if name == SUMS else content) for name, content in releases.ours]
    assert not holds_packed(tmp_path, packed(edited))
    assert FORGER.sign(signed) != signed


def test_a_signed_report_is_no_proof_of_the_files_beside_it(releases: Releases, tmp_path: Path) -> None:
    """A report that is named as the proof was checked instead of the archive."""
    with zipfile.ZipFile(OF_VERSION_1_0_0) as archive:
        report = archive.read("report.json")
    path = tmp_path / "report.json"
    path.write_bytes(report)
    key = public_key(KEY_OF_VERSION_1_0_0)
    assert holds(path, key)
    edited = [("privacy.json", report), (IMAGES, dict(releases.others)[IMAGES])]
    assert not holds_packed(tmp_path, packed(edited), key)
    assert not holds(write_folder(tmp_path / "folder", edited), key)


def _hidden(files: Files, name: str, content: bytes) -> bytes:
    """An entry before all others that the directory at the end of the archive does not know."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        target.writestr(name, content)
        target.filelist.clear()
        target.NameToInfo.clear()
        for kept, kept_content in files:
            target.writestr(kept, kept_content)
    return buffer.getvalue()


def _changed_entry(files: Files, change: Callable[[zipfile.ZipInfo], None]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in files:
            entry = zipfile.ZipInfo(name)
            target.writestr(entry, content)
            if name == IMAGES:
                # What the directory says; the header in front of the entry is written already.
                change(entry)
    return buffer.getvalue()


def _commented(files: Files) -> bytes:
    buffer = io.BytesIO(packed(files))
    with zipfile.ZipFile(buffer, "a") as target:
        target.comment = b"These images are safe."
    return buffer.getvalue()


def _setting(**values: object) -> Callable[[zipfile.ZipInfo], None]:
    def change(entry: zipfile.ZipInfo) -> None:
        for name, value in values.items():
            setattr(entry, name, value)

    return change


PACKINGS: dict[str, Callable[[Files], bytes]] = {
    "bytes in front": lambda files: b"#!/bin/sh\n" + packed(files),
    "an archive in front": lambda files: packed([(IMAGES, b"other images")]) + packed(files),
    "bytes behind": lambda files: packed(files) + b"\0",
    "a comment": _commented,
    "an entry that the directory does not know": lambda files: _hidden(files, IMAGES, b"other images"),
    "a comment of an entry": lambda files: _changed_entry(files, _setting(comment=b"safe")),
    "an encrypted entry": lambda files: _changed_entry(files, _setting(flag_bits=1)),
    "a link": lambda files: _changed_entry(files, _setting(external_attr=0o120777 << 16)),
    "another name for Info-ZIP": lambda files: _changed_entry(files, _setting(extra=b"\x75\x70\x0a\x00\x01abcdother")),
    "another CRC in the directory": lambda files: _changed_entry(files, _setting(CRC=1)),
    "another packing in the directory": lambda files: _changed_entry(files, _setting(compress_type=8)),
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_archive_in_which_another_program_finds_other_files_does_not_hold(
    releases: Releases, tmp_path: Path, packing: str
) -> None:
    assert not holds_packed(tmp_path, PACKINGS[packing](releases.ours))


def test_a_tar_archive_is_no_release(releases: Releases, tmp_path: Path) -> None:
    path = tmp_path / "release.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(write_folder(tmp_path / "folder", releases.ours), arcname=".")
    with pytest.raises(InvalidInput, match="a tar archive"):
        verify_path(path, KEY.public)


def _link_file(folder: Path) -> None:
    (folder / IMAGES).rename(folder.parent / "images")
    (folder / IMAGES).symlink_to(folder.parent / "images")


def _link_folder(folder: Path) -> None:
    (folder.parent / "more").mkdir()
    (folder.parent / "more" / "synthetic.npz").write_bytes(b"other images")
    (folder / "data-2").symlink_to(folder.parent / "more")


FOLDERS: dict[str, Callable[[Path], object]] = {
    "a file is a link": _link_file,
    "a folder is a link": _link_folder,
    "a link leads nowhere": lambda folder: (folder / "x").symlink_to("nowhere"),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "a hidden file": lambda folder: (folder / ".hidden").write_bytes(b""),
    "a file of another program": lambda folder: (folder / "data" / "Thumbs.db").write_bytes(b""),
    "a name that is no text": lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b""),
    "a name in other letter case": lambda folder: (folder / "privacy.JSON").write_bytes(b"{}"),
}


@pytest.mark.parametrize("change", FOLDERS)
def test_a_folder_with_something_beside_the_files_does_not_hold(
    releases: Releases, tmp_path: Path, change: str
) -> None:
    folder = write_folder(tmp_path / "release", releases.ours)
    FOLDERS[change](folder)
    verdict = verify_path(folder, KEY.public)
    assert not verdict.holds
    assert verdict.model_dump_json()


def test_files_in_a_folder_below_a_proof_do_not_hold(releases: Releases, tmp_path: Path) -> None:
    proof = dict(releases.ours)["privacy.json"]
    below = [("privacy.json", proof), *((f"release/{name}", content) for name, content in releases.others)]
    assert not holds_packed(tmp_path, packed(below))
    assert not holds(write_folder(tmp_path / "folder", below))
    assert not holds_packed(tmp_path, packed([("release.zip", packed(releases.ours)), ("privacy.json", proof)]))


@st.composite
def edited_releases(draw: st.DrawFn) -> Callable[[Releases], Files]:
    """Several edits of names and contents, of which another may undo one."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from([*EDITS, "of the other job", "of the forger", "sums", "contents exchanged"]),
                st.integers(0, 40),
                st.integers(0, 40),
            ),
            min_size=1,
            max_size=5,
        )
    )

    def edit(releases: Releases) -> Files:
        files = list(releases.ours)
        for name, first, second in steps:
            at, to = first % max(1, len(files)), second % len(releases.others)
            if name == "sums":
                files = with_sums(files)
            elif name in ("of the other job", "of the forger"):
                source = dict(releases.others if name == "of the other job" else releases.forged)
                replaced = releases.others[to][0]
                files = [(kept, source[kept] if kept == replaced else content) for kept, content in files]
            elif name == "contents exchanged" and files:
                back = second % len(files)
                contents = {at: files[back][1], back: files[at][1]}
                files = [(kept, contents.get(place, content)) for place, (kept, content) in enumerate(files)]
            elif files and at < len(releases.others):
                files = EDITS[name](files, at, releases.others)
        return files

    return edit


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edit=edited_releases(), keyed=st.booleans())
def test_whatever_was_edited_only_a_whole_release_holds(
    releases: Releases, tmp_path: Path, edit: Callable[[Releases], Files], keyed: bool
) -> None:
    files = edit(releases)
    authentic = any(len(files) == len(one) and dict(files) == dict(one) for one in (releases.ours, releases.others))
    assert holds_packed(tmp_path, packed(files), KEY.public if keyed else None) == authentic
