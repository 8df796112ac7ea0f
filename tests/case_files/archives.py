"""Cases of archives: how their entries are named and packed, what lies beside the images, and what is refused."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.data.builders import tarred, zipped

from .old_zip import Entry, encrypted, old_zip
from .pictures import in_folders, pets, png, put_into, tar_of
from .registry import case_file

gzipped: Final[Callable[[bytes], bytes]] = partial(gzip.compress, mtime=0)


def with_folders(names: tuple[str, ...], files: Mapping[str, bytes]) -> bytes:
    """A tar that begins with entries of folders."""
    folders = ((name, b"", {"type": tarfile.DIRTYPE, "mode": 0o755}) for name in names)
    return tarred(*folders, *((name, content, {}) for name, content in files.items()))


@case_file("folders.zip")
def folders() -> bytes:
    return zipped(pets())


@case_file("folders_wrapped.zip")
def folders_in_one_more() -> bytes:
    return zipped(put_into("pets", pets()))


@case_file("zip_dir_entries.zip")
def entries_of_folders() -> bytes:
    return zipped({"cat/": b"", "dog/": b"", **pets()})


@case_file("tar_dot.tar")
def tar_of_the_current_folder() -> bytes:
    return with_folders((".", "./cat", "./dog"), put_into(".", pets()))


@case_file("tar_dot.tar.gz")
def compressed_tar_of_the_current_folder() -> bytes:
    return gzipped(tar_of_the_current_folder())


@case_file("tar_names.tar.gz")
def tar_of_two_folders() -> bytes:
    return gzipped(with_folders(("cat", "dog"), pets()))


@case_file("tar_wrapped.tar.gz")
def tar_of_one_more_folder() -> bytes:
    return gzipped(with_folders(("pets",), put_into("pets", pets())))


@case_file("folders.tar.bz2")
def tar_in_bzip2() -> bytes:
    return bz2.compress(tar_of(pets()))


@case_file("folders.tar.xz")
def tar_in_xz() -> bytes:
    return lzma.compress(tar_of(pets()))


@case_file("tar_macos.tar.gz")
def tar_of_macos() -> bytes:
    fork = b"\x00\x05\x16\x07 of a Mac"
    return gzipped(tar_of({"cat/._0.png": fork, "._cat": fork, **pets()}))


BESIDE: Final = {
    "b_readme.zip": {"README.md": b"Shapes.\n", "LICENSE": b"Free.\n", "cat/notes.txt": b"A cat.\n"},
    "junk_desktop.zip": {
        ".DS_Store": b"\x00\x00\x00\x01Bud1",
        "__MACOSX/cat/._0.png": b"\x00\x05\x16\x07",
        "cat/._0.png": b"\x00\x05\x16\x07",
        "cat/Thumbs.db": b"\xd0\xcf\x11\xe0",
        "desktop.ini": b"[.ShellClassInfo]\r\n",
    },
    "junk_checkpoints.zip": {"cat/.ipynb_checkpoints/0-checkpoint.png": png(6)},
    "folders_emptyclass.zip": {"horse/": b""},
    "zip_absolute.zip": {"/cat/9.png": png(6)},
    "zip_traversal.zip": {"../../cat/9.png": png(6)},
}
"""What lies in an archive beside six pets."""

for _name, _beside in BESIDE.items():
    case_file(_name)(lambda beside=_beside: zipped({**pets(), **beside}))


@case_file("folders_flat.zip")
def images_without_folders() -> bytes:
    return zipped({f"img_{number}.png": png(number) for number in range(6)})


@case_file("folders_backslash2.zip")
def backslashes_in_names() -> bytes:
    return old_zip([Entry(name.replace("/", "\\").encode(), content) for name, content in pets().items()])


@case_file("b_latin1_names.zip")
def names_in_latin_1() -> bytes:
    files = in_folders(("café", "dog"))
    return old_zip([Entry(name.encode("latin-1"), content) for name, content in files.items()])


@case_file("b_utf8_names.zip")
def names_in_utf_8() -> bytes:
    return zipped(in_folders(("café au lait", "a%20b", "🐕")))


@case_file("zip_duplicate.zip")
def one_name_twice() -> bytes:
    return old_zip([Entry(name.encode(), content) for name, content in [*pets().items(), ("cat/0.png", png(0))]])


@case_file("zip_encrypted.zip")
def encrypted_by_a_password() -> bytes:
    return old_zip([encrypted(name.encode(), content, b"secret") for name, content in pets().items()])


@case_file("zip_nested.zip")
def an_archive_in_an_archive() -> bytes:
    return zipped({"inner.zip": folders()})


@case_file("zip_bzip2.zip")
def bzip2_in_a_zip() -> bytes:
    return zipped(pets(), zipfile.ZIP_BZIP2)


@case_file("zip_lzma.zip")
def lzma_in_a_zip() -> bytes:
    return zipped(pets(), zipfile.ZIP_LZMA)


@case_file("zip_ratio.zip")
def a_file_that_inflates_a_thousandfold() -> bytes:
    return zipped({**pets(), "cat/big.png": bytes(65 * 2**20)})


@case_file("zip_empty.zip")
def no_entry() -> bytes:
    return zipped({})


@case_file("zip_cut.zip")
def cut_off_in_its_directory() -> bytes:
    return folders()[:-40]


@case_file("tar_symlink.tar")
def a_link() -> bytes:
    link = ("cat/9.png", b"", {"type": tarfile.SYMTYPE, "linkname": "0.png"})
    return tarred(*((name, content, {}) for name, content in pets().items()), link)


@case_file("tar_traversal.tar")
def a_name_that_climbs() -> bytes:
    return tar_of({**pets(), "../cat/9.png": png(6)})


@case_file("tar_cut.tar")
def a_tar_cut_off_in_its_third_file() -> bytes:
    return tar_of(pets())[:2400]


@case_file("zero.zip")
def no_byte() -> bytes:
    return b""


@case_file("text.zip")
def a_line_of_text() -> bytes:
    return b"This is a text, whatever its name says.\n"
