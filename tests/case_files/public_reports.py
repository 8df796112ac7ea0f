"""Cases that public reports of other tools tell of, with content of our own."""

import struct
import zipfile

import pyarrow as pa
from PIL import Image
from pydicom.uid import GrayscaleSoftcopyPresentationStateStorage, MediaStorageDirectoryStorage

from tests.data.builders import encoded, zipped
from tests.data.dicom_files import dicom, dicom_without_pixels
from tests.data.uploads import table

from .pictures import in_folders, noise, pets, png, put_into
from .registry import case_file

PREAMBLE = 132
"""Bytes in front of the first attribute of a DICOM file: zeros, and DICM."""


def photograph(number: int, side: int = 16) -> Image.Image:
    return Image.fromarray(noise(number, side, side, 3))


def jpeg(number: int) -> bytes:
    return encoded(photograph(number), "JPEG")


def boxed(brand: bytes, *others: bytes, content: bytes = b"") -> bytes:
    """A file of boxes (ISO 14496-12): the one that names brands, and one without meaning."""
    names = brand + bytes(4) + b"".join(others)
    return struct.pack(">L", 8 + len(names)) + b"ftyp" + names + struct.pack(">L", 8 + len(content)) + b"mdat" + content


def heic(number: int) -> bytes:
    return boxed(b"heic", b"mif1", b"heic", content=noise(number).tobytes())


def avif(number: int) -> bytes:
    return boxed(b"avif", b"mif1", b"miaf", content=noise(number).tobytes())


def scan(number: int) -> bytes:
    return dicom(noise(number, 16, 16), PatientID=f"P-{number}")


@case_file("apng.zip")
def animated_pngs() -> bytes:
    def make(number: int) -> bytes:
        frames = [Image.fromarray(noise(2 * number + frame, 16, 16)) for frame in range(2)]
        return encoded(frames[0], save_all=True, append_images=frames[1:])

    return zipped(pets(make))


@case_file("avif.zip")
def pictures_of_av1() -> bytes:
    return zipped(pets(avif, ".avif"))


@case_file("case_labels.zip")
def folders_that_differ_in_case_or_a_space() -> bytes:
    return zipped({**in_folders(("cat", "Cat", "dog")), **in_folders(("dog ",), each=2, start=9)})


def with_table(header: str, *rows: str) -> bytes:
    """Six pets in one folder, and a line of a table for each."""
    names = [f"{name}{place}.png" for name in ("cat", "dog") for place in range(3)]
    lines = [header, *(f"{name},{row}" for name, row in zip(names, rows, strict=True))]
    pictures = {name: png(number) for number, name in enumerate(names)}
    return zipped({**pictures, "metadata.csv": "\n".join([*lines, ""]).encode()})


@case_file("csv_label_spaces.zip")
def labels_that_differ_in_case_or_a_space() -> bytes:
    return with_table("file_name,label", "cat", "cat ", "Cat", "dog", "dog ", "Dog")


@case_file("csv_patient_case.zip")
def patients_that_differ_in_case_or_a_space() -> bytes:
    patients = ("cat1", "cat1 ", "CAT1", "dog1", "dog1 ", "DOG1")
    return with_table("file_name,label,patient", *(f"{patient[:3].lower()},{patient}" for patient in patients))


@case_file("dcm_dicomdir.zip")
def a_dicom_directory_beside_the_classes() -> bytes:
    return zipped({**pets(scan, ".dcm"), "DICOMDIR": dicom_without_pixels(MediaStorageDirectoryStorage)})


@case_file("dcm_nopreamble.zip")
def dicom_some_without_preamble() -> bytes:
    return zipped(pets(lambda number: scan(number)[PREAMBLE if number % 3 == 1 else 0 :], ".dcm"))


@case_file("dcm_nopreamble_all.zip")
def dicom_without_preamble() -> bytes:
    return zipped(pets(lambda number: scan(number)[PREAMBLE:], ".dcm", each=4))


@case_file("dcm_presentation.zip")
def a_presentation_state_among_scans() -> bytes:
    state = dicom_without_pixels(GrayscaleSoftcopyPresentationStateStorage)
    return zipped({**pets(scan, ".dcm"), "cat/ps.dcm": state})


@case_file("deflate64.zip")
def a_zip_of_windows_explorer() -> bytes:
    """Method 9 in every header, which no program needs to unpack to tell."""
    whole = zipped(pets(), zipfile.ZIP_STORED)
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        parts = whole.split(signature)
        whole = signature.join([parts[0], *(part[: place - 4] + b"\x09\0" + part[place - 2 :] for part in parts[1:])])
    return whole


@case_file("heic_as_jpg.zip")
def a_heic_called_jpg() -> bytes:
    return zipped({**pets(), "cat/IMG_0001.jpg": heic(9)})


@case_file("jpg_as_heic.zip")
def a_jpeg_called_heic() -> bytes:
    return zipped({**pets(), "cat/IMG_0002.HEIC": encoded(Image.fromarray(noise(9)), "JPEG")})


@case_file("jpg_mpo.zip")
def camera_jpegs_with_a_second_picture() -> bytes:
    def make(number: int) -> bytes:
        return encoded(photograph(number), "MPO", save_all=True, append_images=[photograph(50 + number, 8)])

    return zipped(pets(make, ".JPG"))


@case_file("person_in_names.zip")
def persons_in_names_of_files() -> bytes:
    def split(start: int) -> dict[str, bytes]:
        names = {"NORMAL": "normal", "PNEUMONIA": "bacteria"}
        files = [(kind, f"person{person}_{word}_{n}.jpeg") for kind, word in names.items()
                 for person in (1, 2, 3) for n in range(2)]  # fmt: skip
        return {f"{kind}/{name}": encoded(Image.fromarray(noise(start + n)), "JPEG")
                for n, (kind, name) in enumerate(files)}  # fmt: skip

    return zipped({**put_into("train", split(0)), **put_into("test", split(12))})


@case_file("pets.rar")
def a_rar_archive() -> bytes:
    return b"Rar!\x1a\x07\x01\x00" + noise(0, 500).tobytes()


@case_file("pq_listimage.parquet")
def a_list_of_images_in_each_row() -> bytes:
    one = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    rows = [[{"bytes": png(number), "path": None}] for number in range(6)]
    return table(None, images=pa.array(rows, pa.list_(one)), label=[0, 1] * 3)


@case_file("pq_unlabelled_test.zip")
def a_test_split_whose_labels_are_kept_back() -> bytes:
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}

    def split(start: int, labels: list[int]) -> bytes:
        rows = [{"bytes": png(start + number), "path": None} for number in range(6)]
        return table(features, image=rows, label=labels)

    return zipped(
        {
            "data/train-00000-of-00001.parquet": split(0, [0, 0, 0, 1, 1, 1]),
            "data/test-00000-of-00001.parquet": split(6, [-1] * 6),
        }
    )
