"""Files that somebody might send to hurt the service, each made in place: what must be refused, and how."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from .builders import encoded, grey, npy_bytes, random_images, tarred, zipped
from .uploads import IMAGES, LABELS, PNGS, folder, hugging_face_table, idx, table

CANARY = "datalens-canary"
PIXELS = Image.fromarray(random_images(1, 8, 8)[0])
COLOURS = Image.fromarray(random_images(1, 8, 8, 3)[0])


class Hostile(NamedTuple):
    """A file and a part of the sentence that refuses it."""

    make: Callable[[], bytes]
    says: str


class Payload:
    """Unpickling this leaves a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (CANARY, "w"))


def patched(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """With `value` at `offset` behind the last occurrence of `signature`."""
    position = data.rfind(signature) + offset
    return data[:position] + value + data[position + len(value) :]


def overlapping() -> bytes:
    data = zipped({"a/1.png": bytes(range(256)) * 40, "a/2.png": b""}, zipfile.ZIP_STORED)
    data = patched(data, b"PK\x01\x02", 20, struct.pack("<LL", 10240, 10240))
    return patched(data, b"PK\x01\x02", 42, struct.pack("<L", 0))


def duplicated() -> bytes:
    return zipped({"a/1.png": PNGS[0], "a/2.png": PNGS[1]}).replace(b"a/2.png", b"a/1.png")


def tar_folder(**changes: Any) -> bytes:
    good = [(name, data, {}) for name, data in folder().items()]
    return tarred(*good, ("0/link.png", b"", {"linkname": "/etc/passwd", **changes}))


def tar_header(size: bytes, kind: bytes = b"0", body: bytes = b"") -> bytes:
    header = bytearray(tarfile.TarInfo("0/a.png").tobuf(tarfile.USTAR_FORMAT))
    header[124:136], header[156:157] = size, kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + body + bytes(1024)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, packed: bytes, *chunks: bytes) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">LLBBBBB", width, height, depth, colour, 0, 0, 0))
    rest = b"".join(chunks) + png_chunk(b"IDAT", packed) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + rest


def with_image(image: bytes) -> bytes:
    """A folder in which one image is `image`."""
    return zipped({**folder(), "1/99.png": image})


def with_metadata(name: str, content: bytes) -> bytes:
    return zipped({name: content, "a.png": PNGS[0], "b.png": PNGS[1]})


def npz(images: bytes, labels: bytes = npy_bytes(LABELS)) -> bytes:
    return zipped({"images.npy": images, "labels.npy": labels})


def npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + body


def pickled_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Payload()] * 12, dtype=object), allow_pickle=True)
    return buffer.getvalue()


def claiming(*shape: int) -> bytes:
    return npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}")


def parquet(**changes: Any) -> bytes:
    columns = {"image": [{"bytes": image, "path": None} for image in PNGS], "label": LABELS, **changes}
    return table(None, **columns)


def repeated_value() -> bytes:
    """A dictionary with one large image that half a million rows refer to."""
    image = grey() + bytes(10_000)
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, np.int32)), pa.array([image]))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"image": values, "label": np.zeros(500_000, np.int64)}), buffer)
    return buffer.getvalue()


def inflating_pages() -> bytes:
    buffer = io.BytesIO()
    columns = {"image": [bytes(8 * 2**20)] * 12, "label": LABELS}
    pq.write_table(pa.table(columns), buffer, compression="zstd", use_dictionary=False)
    return buffer.getvalue()


def lying_pages() -> bytes:
    """Pages that inflate under a footer that claims a megabyte."""
    content = inflating_pages()
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    for size in (group.total_byte_size, group.column(0).total_uncompressed_size):
        content = content.replace(varint(2 * size), varint(2**21))
    return content


def varint(number: int) -> bytes:
    """As Thrift's compact protocol writes it."""
    groups = [number >> shift & 127 for shift in range(0, number.bit_length(), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def deep_features(depth: int) -> bytes:
    """Every read of the schema parses this."""
    buffer = io.BytesIO()
    features = "[" * depth + "]" * depth
    pq.write_table(
        pa.table({"image": PNGS, "label": LABELS}).replace_schema_metadata({"huggingface": features}), buffer
    )
    return buffer.getvalue()


def nested(depth: int) -> bytes:
    return b'{"label": ' + b"[" * depth + b"]" * depth + b"}"


ARCHIVE = "damaged or cut off"
PATH = "acts as a path"
UNKNOWN = "neither an NPZ"
KIND = "8-bit grey or RGB"
UNDECODABLE = "cannot be decoded"
TIMES = "times its size"

ZIPS = {
    "zip bomb": Hostile(lambda: zipped({"a/1.png": bytes(200 * 2**20)}), TIMES),
    "zip of zip bombs": Hostile(
        lambda: zipped({f"a/{i}.zip": zipped({"0": bytes(2**20)}) for i in range(8)}), "another archive"
    ),
    "zip in a folder of images": Hostile(
        lambda: zipped({**folder(), "0/more.zip": zipped({})}), "another archive, a zip"
    ),
    "entry that claims 1 GiB": Hostile(
        lambda: patched(zipped({"a/1.png": b"1"}), b"PK\x01\x02", 24, struct.pack("<L", 2**30)), TIMES
    ),
    "entry that hides 64 MiB": Hostile(
        lambda: patched(zipped({"a/1.png": bytes(2**26)}), b"PK\x01\x02", 24, struct.pack("<L", 99)), ARCHIVE
    ),
    "entries that share their bytes": Hostile(overlapping, ARCHIVE),
    "too many entries": Hostile(lambda: zipped({f"a/{i}": b"" for i in range(200_001)}), "too many entries"),
    "encrypted": Hostile(lambda: patched(zipped(folder()), b"PK\x01\x02", 8, b"\x01\x00"), "encrypted"),
    "bzip2 inside": Hostile(lambda: zipped(folder(), zipfile.ZIP_BZIP2), "unusual compression"),
    "script before the zip": Hostile(lambda: b"#!/bin/sh\n" + zipped(folder()), UNKNOWN),
    "cut off": Hostile(lambda: zipped(folder())[:-30], ARCHIVE),
    "climbing name": Hostile(lambda: zipped({**folder(), "../../etc/cron.d/x": b""}), PATH),
    "absolute name": Hostile(lambda: zipped({**folder(), "/etc/passwd": b""}), PATH),
    "drive": Hostile(lambda: zipped({**folder(), "C:/x.png": b""}), PATH),
    "backslash": Hostile(lambda: zipped({**folder(), "0\\..\\x.png": b""}), PATH),
    "NUL in a name": Hostile(lambda: zipped({**folder(), "0/a.png\0.exe": b""}), PATH),
    "name that reverses its text": Hostile(lambda: zipped({**folder(), "0/\u202egnp.exe": b""}), PATH),
    "symbolic link": Hostile(lambda: zipped({"0/a.png": b"/etc/passwd"}, mode=0o120777), PATH),
    "device": Hostile(lambda: zipped({"0/a.png": b""}, mode=0o020666), PATH),
    "same name twice": Hostile(duplicated, "occurs twice"),
    "names that differ in case, beside a table": Hostile(
        lambda: zipped({"metadata.csv": b"file_name,label\na.png,0\n", "a.png": PNGS[0], "A.PNG": PNGS[1]}),
        "differ only in upper and lower case",
    ),
    "folder and file of one name": Hostile(lambda: zipped({"a/": b"", "a": PNGS[0]}), "occurs twice"),
}

TARS = {
    "tar: symbolic link": Hostile(lambda: tar_folder(type=tarfile.SYMTYPE), PATH),
    "tar: hard link": Hostile(lambda: tar_folder(type=tarfile.LNKTYPE), PATH),
    "tar: device": Hostile(lambda: tar_folder(type=tarfile.CHRTYPE), PATH),
    "tar: pipe": Hostile(lambda: tar_folder(type=tarfile.FIFOTYPE), PATH),
    "tar: climbing name": Hostile(lambda: tarred(("../../x.png", PNGS[0], {})), PATH),
    "tar: absolute name": Hostile(lambda: tarred(("/x.png", PNGS[0], {})), PATH),
    "tar: same name twice": Hostile(lambda: tarred(("a/1.png", PNGS[0], {}), ("a/1.png", PNGS[1], {})), "occurs twice"),
    "tar: sparse file": Hostile(lambda: tar_header(b"00000000000\0", kind=b"S"), PATH),
    "tar: size beyond the end": Hostile(lambda: tar_header(b"77777777777\0"), ARCHIVE),
    "tar: negative size": Hostile(lambda: tar_header(b"\xff" * 12), ARCHIVE),
    "tar: endless extended header": Hostile(lambda: tar_header(b"%011o\0" % 2**28, kind=b"x"), ARCHIVE),
    "tar: long extended header": Hostile(lambda: tar_header(b"%011o\0" % 2**20, kind=b"x", body=b"x" * 2**20), ARCHIVE),
    "tar: long name header": Hostile(lambda: tar_header(b"%011o\0" % 2**20, kind=b"L", body=b"x" * 2**20), ARCHIVE),
    "tar: cut off between files": Hostile(
        lambda: tarred(*((n, d, {}) for n, d in folder().items()), end=False), ARCHIVE
    ),
    "tar: damaged header": Hostile(
        lambda: tarred(("a/1.png", PNGS[0], {})).replace(b"ustar", b"ustar", 1)[:1024] + b"x" * 2048, ARCHIVE
    ),
    "tar.gz bomb": Hostile(lambda: gzip.compress(tarred(("a/1.png", bytes(200 * 2**20), {}))), TIMES),
    "gzip, cut off": Hostile(lambda: gzip.compress(tarred(("a/1.png", PNGS[0], {})))[:-20], ARCHIVE),
    "gzip in gzip": Hostile(
        lambda: gzip.compress(gzip.compress(tarred(("a/1.png", PNGS[0], {})))), "holds a file packed with gzip"
    ),
}

PICTURES = {
    "pixel flood": Hostile(lambda: with_image(png(10_000, 10_000, 8, 0, b"")), "more than 67,108,864 pixels"),
    "pixel flood beyond Pillow's own cap": Hostile(lambda: with_image(png(20_000, 20_000, 8, 0, b"")), UNDECODABLE),
    "pixel flood of 2^31 rows": Hostile(lambda: with_image(png(2**31 - 1, 2**31 - 1, 8, 0, b"")), UNDECODABLE),
    "pixels that inflate": Hostile(
        lambda: with_image(png(1025, 1024, 8, 0, zlib.compress(bytes(64 * 2**20)))),
        "sizes, 8 to 1,025 pixels",
    ),
    "cut off PNG": Hostile(lambda: with_image(PNGS[0][:-30]), UNDECODABLE),
    "cut off JPEG": Hostile(lambda: with_image(encoded(PIXELS, "JPEG")[:-100]), UNDECODABLE),
    "wrong checksum": Hostile(lambda: with_image(PNGS[0][:29] + b"\0\0\0\0" + PNGS[0][33:]), UNDECODABLE),
    "PNG that is also a zip": Hostile(lambda: with_image(PNGS[0] + zipped({"a": b"1"})), "behind the image"),
    "JPEG that is also a script": Hostile(
        lambda: with_image(encoded(PIXELS, "JPEG") + b"<script>alert(1)</script>"), "behind the image"
    ),
    "PNG comment that inflates": Hostile(
        lambda: with_image(png(8, 8, 8, 0, b"", png_chunk(b"zTXt", b"c\0\0" + zlib.compress(bytes(2**25))))),
        UNDECODABLE,
    ),
    "PNG colour profile that inflates": Hostile(
        lambda: with_image(png(8, 8, 8, 0, b"", png_chunk(b"iCCP", b"c\0\0" + zlib.compress(bytes(2**25))))),
        UNDECODABLE,
    ),
    "16-bit grey": Hostile(lambda: with_image(encoded(Image.fromarray(np.zeros((8, 8), np.uint16)))), KIND),
    "16-bit colour": Hostile(lambda: with_image(png(8, 8, 16, 2, zlib.compress((b"\0" + bytes(48)) * 8))), KIND),
    "4-bit grey": Hostile(lambda: with_image(png(8, 8, 4, 0, zlib.compress((b"\0" + bytes(4)) * 8))), KIND),
    "bilevel": Hostile(lambda: with_image(encoded(PIXELS.convert("1"))), KIND),
    "CMYK": Hostile(lambda: with_image(encoded(COLOURS.convert("CMYK"), "JPEG")), KIND),
    "palette": Hostile(lambda: with_image(encoded(COLOURS.convert("P"))), KIND),
    "transparency": Hostile(lambda: with_image(encoded(COLOURS.convert("RGBA"))), KIND),
    "grey with transparency": Hostile(lambda: with_image(encoded(PIXELS.convert("LA"))), KIND),
    "transparent colour": Hostile(lambda: with_image(encoded(COLOURS, transparency=(1, 2, 3))), KIND),
    "animated PNG": Hostile(
        lambda: with_image(encoded(PIXELS, save_all=True, append_images=[PIXELS.rotate(90)])), "animated"
    ),
    "JPEG with a second picture and a script": Hostile(
        lambda: with_image(
            encoded(PIXELS, "MPO", save_all=True, append_images=[PIXELS]) + b"<script>alert(1)</script>"
        ),
        "behind the image",
    ),
    **{
        f"{kind} named PNG": Hostile(lambda kind=kind: with_image(encoded(COLOURS, kind)), says)  # type: ignore[misc]
        for kind, says in {
            "GIF": "a GIF picture, which is read once",
            "BMP": "a BMP picture, which is read once",
            "TIFF": "a TIFF picture, which is read once",
            "WEBP": "a WebP picture, which is read once",
            "EPS": "a PostScript drawing, which is not read",
            "ICO": "an icon .ICO., which is not read",
            "PPM": "a Netpbm picture .PGM, PPM., which is not read",
            "PDF": "a PDF document, which is not read",
            "TGA": UNDECODABLE,
        }.items()
    },
    "PSD named PNG": Hostile(lambda: with_image(b"8BPS\0\1" + bytes(60)), "a Photoshop picture"),
    "FITS named PNG": Hostile(lambda: with_image(b"SIMPLE  =                    T".ljust(2880)), "a FITS picture"),
    "zip named PNG": Hostile(lambda: with_image(b"PK\x03\x04" + bytes(40)), "another archive, a zip"),
    "magic of a PNG alone": Hostile(lambda: with_image(b"\x89PNG\r\n\x1a\n"), UNDECODABLE),
    "nothing named PNG": Hostile(lambda: with_image(b""), UNDECODABLE),
    "SVG named PNG": Hostile(lambda: with_image(b"<svg onload='alert(1)'/>"), "a vector drawing .SVG."),
    "17 MiB behind a PNG": Hostile(
        lambda: zipped({"0/1.png": grey() + bytes(17 * 2**20)}), "more than the 16,777,216 bytes"
    ),
}

ARRAYS = {
    "pickle": Hostile(lambda: pickle.dumps(Payload()), "a pickle of Python objects"),
    "torch file": Hostile(lambda: zipped({"archive/data.pkl": pickle.dumps(Payload())}), "a PyTorch file"),
    "NPZ of pickled objects": Hostile(lambda: npz(pickled_array()), "Python objects"),
    "NPZ of pickled names": Hostile(
        lambda: zipped(
            {"images.npy": npy_bytes(IMAGES), "labels.npy": npy_bytes(LABELS), "class_names.npy": pickled_array()}
        ),
        "Python objects",
    ),
    "NPZ of pickled labels": Hostile(lambda: npz(npy_bytes(IMAGES), pickled_array()), "Python objects"),
    "NPZ that claims 2^60 images": Hostile(lambda: npz(claiming(2**60, 8, 8)), "array in the NPZ"),
    "NPZ with a negative length": Hostile(lambda: npz(claiming(-1, 8, 8)), "NPZ"),
    "NPZ with empty images": Hostile(lambda: npz(claiming(2**60, 8, 0)), "empty"),
    "NPZ with a header of 60 kB": Hostile(lambda: npz(npy("{" + " " * 60_000 + "}")), "array in the NPZ"),
    "NPZ with a header of 16 MiB": Hostile(
        lambda: npz(npy("{" + " " * 2**24 + "}", version=b"\x02\x00")), "array in the NPZ"
    ),
    "NPZ with code in its header": Hostile(lambda: npz(npy(f"__import__('os').mknod('{CANARY}')")), "array in the NPZ"),
    "NPZ with a deeply nested header": Hostile(lambda: npz(npy("(" * 9000 + ")" * 9000)), "array in the NPZ"),
    "IDX that claims 2^32 images": Hostile(
        lambda: zipped({"train-i": b"\0\0\x08\x03" + b"\xff" * 12, "train-l": idx(LABELS)}), "times"
    ),
    "IDX with something behind it": Hostile(
        lambda: zipped({"train-i": idx(IMAGES) + b"x", "train-l": idx(LABELS)}), ARCHIVE
    ),
    "IDX without pixels": Hostile(
        lambda: zipped({"train-i": b"\0\0\x08\x03" + bytes(12), "train-l": idx(LABELS)}), "none with pixels"
    ),
    "IDX with a bomb in gzip": Hostile(
        lambda: zipped(
            {"train-i": gzip.compress(idx(np.zeros((2**18, 32, 32)))), "train-l": gzip.compress(idx(LABELS))}
        ),
        "times",
    ),
    "IDX with a damaged gzip": Hostile(
        lambda: zipped({"train-i": gzip.compress(b"")[:10] + b"\x01" * 40, "train-l": idx(LABELS)}), "packed with gzip"
    ),
    "IDX, three files": Hostile(lambda: zipped({"a": idx(IMAGES), "b": idx(LABELS), "c": idx(LABELS)}), "one file"),
}

TABLES = {
    "Parquet, cut off": Hostile(lambda: hugging_face_table()[:-9], "Parquet file is damaged"),
    "Parquet with a footer of 4 GiB": Hostile(
        lambda: hugging_face_table()[:-8] + b"\xff\xff\xff\xffPAR1", "Parquet file is damaged"
    ),
    "Parquet with a footer of noise": Hostile(
        lambda: b"PAR1" + random_images(1, 4096).tobytes() + struct.pack("<L", 4000) + b"PAR1",
        "Parquet file is damaged",
    ),
    "Parquet: one value, half a million rows": Hostile(repeated_value, TIMES),
    "Parquet: pages that inflate": Hostile(inflating_pages, TIMES),
    "Parquet: pages that inflate, and a footer that lies": Hostile(lying_pages, TIMES),
    "Parquet: paths instead of bytes": Hostile(
        lambda: parquet(image=[{"bytes": None, "path": "/etc/passwd"}] * 12), "paths to other files"
    ),
    "Parquet: images are numbers": Hostile(lambda: parquet(image=LABELS), "no image bytes"),
    "Parquet: labels are fractions": Hostile(lambda: parquet(label=LABELS / 2), "neither a whole number nor a word"),
    "Parquet: no labels": Hostile(lambda: table(None, image=PNGS), "one column of images"),
    "Parquet: deep features": Hostile(lambda: deep_features(100_000), "Parquet file is damaged"),
    "Parquet: negative label": Hostile(lambda: parquet(label=LABELS - 1), "4 of 12 labels are negative"),
    "Parquet: label 10^18": Hostile(lambda: parquet(label=LABELS + 10**18), "more than 15 digits"),
    "metadata that climbs": Hostile(
        lambda: with_metadata("metadata.csv", b"file_name,label\n../../etc/passwd,1\n"), "names this image"
    ),
    "metadata with a field of 1 MB": Hostile(
        lambda: with_metadata("metadata.csv", b"file_name,label\na.png," + b"x" * 10**6), "no row of a table"
    ),
    "metadata, deeply nested": Hostile(lambda: with_metadata("metadata.jsonl", nested(100_000)), "no JSON object"),
    "metadata of 64 MiB": Hostile(
        lambda: zipped({"metadata.csv": b"file_name,label\n".ljust(2**26 + 1), "a.png": PNGS[0]}), "times|at most"
    ),
    "WebDataset: label of 1 MB": Hostile(
        lambda: tarred(("a.png", PNGS[0], {}), ("a.cls", b"1" * 10**6, {})), "label cannot be read"
    ),
    "WebDataset: nested label": Hostile(
        lambda: tarred(("a.png", PNGS[0], {}), ("a.json", nested(20_000), {})), "label cannot be read"
    ),
    "WebDataset: label without end": Hostile(
        lambda: tarred(("a.png", PNGS[0], {}), ("b.png", PNGS[1], {}), ("a.cls", b"1", {})), "has no label"
    ),
}

CORPUS: dict[str, Hostile] = {**ZIPS, **TARS, **PICTURES, **ARRAYS, **TABLES}
