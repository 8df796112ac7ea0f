"""Cases of patients and of class names: who is in the images, and what may be published of them."""

import uuid
from collections.abc import Callable, Iterator

from pydicom.uid import SecondaryCaptureImageStorage

from tests.data.builders import zipped
from tests.data.dicom_files import dicom

from .pictures import in_folders, noise, png, scan
from .registry import case_file

PATIENTS = tuple(f"MRN-{number:04}" for number in range(1, 5))


def dicom_scan(number: int, patient: str) -> bytes:
    """Twelve bits of one patient, with the window that a scanner proposes."""
    pixels = noise(number, 16, 16, below=4096)
    depth = {"BitsStored": 12, "HighBit": 11, "WindowCenter": "2048", "WindowWidth": "4096"}
    instance = {"SOPClassUID": SecondaryCaptureImageStorage, "SOPInstanceUID": f"2.25.{1000 + number}"}
    return dicom(pixels, PatientID=patient, PatientName="", Modality="OT", **depth, **instance)


def hospital(dicom_too: bool = False) -> dict[str, bytes]:
    """Four patients with three scans each; with `dicom_too`, every other scan is a DICOM file."""
    files = {}
    for number in range(12):
        patient, as_dicom = PATIENTS[number // 3], dicom_too and number % 2 == 1
        name = f"{patient}/scan_{number % 3}.{'dcm' if as_dicom else 'png'}"
        files[name] = dicom_scan(number, patient) if as_dicom else scan(number)
    return files


def with_table(files: dict[str, bytes]) -> dict[str, bytes]:
    """With a table of the scans: the first and the third patient are ill."""
    rows = ["file_name,label,patient"]
    for name in files:
        patient = name.partition("/")[0]
        rows.append(f"{name},{'normal' if PATIENTS.index(patient) % 2 else 'pneumonia'},{patient}")
    return {**files, "metadata.csv": ("\n".join(rows) + "\n").encode()}


@case_file("hospital")
def hospital_folder() -> dict[str, bytes]:
    return with_table(hospital())


@case_file("hospital.zip")
def hospital_zip() -> bytes:
    return zipped(hospital_folder())


@case_file("hospital_nocsv.zip")
def hospital_without_table() -> bytes:
    return zipped(hospital())


@case_file("hospital_dicom.zip")
def hospital_dicom() -> bytes:
    return zipped(with_table(hospital(dicom_too=True)))


@case_file("hospital_dicom_nocsv.zip")
def hospital_dicom_without_table() -> bytes:
    return zipped(hospital(dicom_too=True))


def scans_of(kind: str, patients: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """A class of DICOM files, one of each of these patients."""
    for number, patient in enumerate(patients):
        yield f"{kind}/{number}.dcm", dicom_scan(10 * (kind == "pneumonia") + number, patient)


@case_file("dicom_class_folders.zip")
def dicom_class_folders() -> bytes:
    first, second, third, fourth = PATIENTS
    normal = scans_of("normal", (first, first, second, second))
    return zipped(dict([*normal, *scans_of("pneumonia", (third, third, fourth, fourth))]))


@case_file("dicom_mixed_class_folders.zip")
def patients_in_both_classes_beside_images_of_nobody() -> bytes:
    files = dict([*scans_of("normal", PATIENTS[:3]), *scans_of("pneumonia", PATIENTS[:3])])
    return zipped({**files, "normal/3.png": scan(20), "pneumonia/3.png": scan(21)})


@case_file("patients_in_classes.zip")
def folders_of_patients_in_folders_of_classes() -> bytes:
    kinds = ("normal", "normal", "pneumonia", "pneumonia")
    files = {}
    for number in range(8):
        files[f"{kinds[number // 2]}/{PATIENTS[number // 2]}/{number % 4}.png"] = png(number)
    return zipped(files)


def folders(*names: str, each: int = 3) -> Callable[[], bytes]:
    return lambda: zipped(in_folders(names, each))


case_file("many_numeric_ids.zip")(folders(*(str(100_001 + 7 * number) for number in range(60)), each=2))
case_file("classes_email.zip")(folders(*(f"person{number}@example.org" for number in range(3))))
case_file("classes_uuid.zip")(folders(*(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"person{n}")) for n in range(3))))
case_file("digit_folders.zip")(folders(*"0123456789", each=2))
case_file("names_with_digits.zip")(folders("covid19", "h1n1", "type-2"))
