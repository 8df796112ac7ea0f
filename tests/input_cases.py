"""The right answers to files as people make them, which `tests/case_files` writes.

The same answers are right over the page, REST, the command line and Python. Choices are fields of the form of an
upload; `PREPARED` are those that bring every image to one size.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.case_files import case_path

PREPARED: Final = {"prepare_size": "8"}
WINDOW: Final = {**PREPARED, "prepare_window": "0 4000"}


@dataclass(frozen=True)
class Read:
    """A file that is read.

    Attributes:
        classes: Training images per class.
        test: Test images per class; empty without a test split.
        unit: Word for a privacy unit, with how many there are; None: every image.
        size: Width, height, channels; None: not looked at.
        notices: Code and count, as far as they are looked at.
    """

    classes: dict[str, int]
    test: dict[str, int] = field(default_factory=dict)
    unit: tuple[str, int] | None = None
    size: tuple[int, int, int] | None = None
    notices: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """A file that is refused.

    Attributes:
        sentence: A part of the reason, with names as `⟦name⟧`.
        names: Files that are named, as far as they are looked at.
    """

    sentence: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A file, what its owner chooses, and the right answer."""

    file: str
    answer: Read | Refused
    choices: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the file is, once it was written."""
        return case_path(self.file)

    def __str__(self) -> str:
        return " ".join((self.file, *self.choices))


CATS = Read({"cat": 3, "dog": 3})
TWO = Read({"0": 4, "1": 4})
NORMAL = {"normal": 6, "pneumonia": 6}
SKIP = {"skip_unreadable": True}
ONE_SIZE = "choose one size for all, for example 8, in ⟦prepare_size⟧"
ASKS = "Declare ⟦records_per_unit⟧"
IDENTIFIERS = "look like identifiers of persons"


def patients(count: int, classes: dict[str, int], records: int, unit: str = "patient") -> tuple[Read, dict[str, Any]]:
    """The answer where units were declared, and the choices for it."""
    return Read(classes, unit=(unit, count)), {"records_per_unit": records}


def _hospital(file: str) -> list[Case]:
    answer, declared = patients(4, NORMAL, 3)
    return [
        Case(file, Refused("16-bit grey", ("MRN-0001/scan_0.png",)), PREPARED),
        Case(file, Refused(f"up to 3 training images. {ASKS}"), WINDOW),
        Case(file, answer, {**WINDOW, **declared}),
    ]


def _damaged(file: str, name: str, sentence: str = "cannot be decoded") -> list[Case]:
    skipped = Read({"cat": 4, "dog": 4}, notices={"unreadable_left_out": 1})
    return [Case(file, Refused(sentence, (name,))), Case(file, skipped, SKIP)]


def _grouped(file: str, unit: str, count: int, classes: dict[str, int], records: int = 2) -> list[Case]:
    answer, declared = patients(count, classes, records, unit)
    return [
        Case(file, Refused(f"one {unit} has up to {records} training images. {ASKS}")),
        Case(file, answer, declared),
        Case(file, Read(classes), {"ignore_groups": True}),
    ]


def _prepared(file: str, answer: Read, sentence: str = "⟦prepare_size⟧") -> list[Case]:
    return [Case(file, Refused(sentence)), Case(file, answer, PREPARED)]


def _changed(code: str, count: int = 6, size: tuple[int, int, int] = (8, 8, 1)) -> Read:
    return Read({"cat": 3, "dog": 3}, size=size, notices={code: count})


PERSONS: Final = [
    *_hospital("hospital"),
    *_hospital("hospital.zip"),
    *_hospital("hospital_dicom.zip"),
    Case("hospital_nocsv.zip", Refused(IDENTIFIERS, ("MRN-0001", "MRN-0004"))),
    Case("hospital_nocsv.zip", Refused("metadata.csv with the columns file_name, label and patient"), WINDOW),
    Case(
        "hospital_nocsv.zip",
        Read({f"MRN-000{number}": 3 for number in range(1, 5)}),
        {**WINDOW, "allow_identifying_classes": True},
    ),
    Case("hospital_dicom_nocsv.zip", Refused("PatientID or PatientName", ("MRN-0001",)), WINDOW),
    Case("dicom_class_folders.zip", Refused("one patient has up to 2 training images"), PREPARED),
    Case(
        "dicom_class_folders.zip",
        Read({"normal": 4, "pneumonia": 4}, unit=("patient", 4)),
        {**PREPARED, "records_per_unit": 2},
    ),
    Case("dicom_mixed_class_folders.zip", Refused("names no patient", ("normal/3.png",)), PREPARED),
    Case("dicom_mixed_class_folders.zip", Read({"normal": 4, "pneumonia": 4}), {**WINDOW, "ignore_groups": True}),
    *_grouped("patients_in_classes.zip", "group", 4, {"normal": 4, "pneumonia": 4}),
    Case("many_numeric_ids.zip", Refused(IDENTIFIERS)),
    Case("classes_email.zip", Refused(IDENTIFIERS)),
    Case("classes_uuid.zip", Refused(IDENTIFIERS)),
    Case("digit_folders.zip", Read({str(digit): 2 for digit in range(10)})),
    Case("names_with_digits.zip", Read({"covid19": 3, "h1n1": 3, "type-2": 3})),
]

BOTH: Final = Read(CATS.classes, {"cat": 2, "dog": 2}, unit=("patient", 3), notices={"persons_in_both": 2})


def _in_both(file: str, unit: str = "patient", prepared: dict[str, Any] | None = None) -> list[Case]:
    """A file with two of three persons in both splits, who each have two training images."""
    choices, declared = prepared or {}, {**(prepared or {}), "records_per_unit": 2}
    single = Read(BOTH.classes, BOTH.test, notices=BOTH.notices)
    return [
        Case(file, Refused(f"one {unit} has up to 2 training images. {ASKS}"), choices),
        Case(file, replace(BOTH, unit=(unit, 3)), declared),
        Case(file, single, {**choices, "ignore_groups": True}),
    ]


def _names(file: str, count: int | None) -> Case:
    notices = {} if count is None else {"persons_in_names": count}
    return Case(file, Read({"cat": 6, "dog": 6}, notices=notices))


PERSONS_IN_SPLITS: Final = [
    *_in_both("persons_both_csv.zip"),
    *_in_both("persons_both_folders.zip", "group"),
    *_in_both("persons_both_dicom.zip", prepared=PREPARED),
    *_in_both("persons_both_parquet.zip"),
    *_in_both("persons_both_webdataset.tar"),
    *_in_both("persons_both.npz", "group"),
    Case("persons_apart.zip", replace(BOTH, notices={}), {"records_per_unit": 2}),
    Case("persons_test_unnamed.zip", replace(BOTH, notices={"test_persons_unknown": 4}), {"records_per_unit": 2}),
    Case(
        "person_keys_alike.zip",
        Read(CATS.classes, unit=("patient", 4), notices={"keys_joined": 1, "keys_alike": 1}),
        {"records_per_unit": 3},
    ),
    Case("person_keys_alike.zip", Refused("one patient has up to 3 training images")),
    Case("person_anonymous.zip", Refused("All 6 training images have the same patient"), PREPARED),
    Case("person_anonymous.zip", CATS, {**PREPARED, "ignore_groups": True}),
    Case("person_no_id.zip", Refused("as anonymised exports do", ("train/cat/0.dcm",)), PREPARED),
    Case("person_no_id.zip", CATS, {**PREPARED, "ignore_groups": True}),
    _names("person_names_chest.zip", 3),
    _names("person_names_numbers.zip", 6),
    _names("person_names_eyes.zip", 6),
    _names("names_running.zip", None),
    _names("names_of_classes.zip", None),
    Case("column_date.zip", Read({"cat": 6, "dog": 6}, notices={"unused_columns": 1})),
]

METADATA: Final = [
    *(Case(f"meta_csv{kind}.zip", CATS) for kind in ("", "_bom", "_utf16", "_semicolon", "_tab")),
    Case("meta_csv_quoted.zip", Read({"cat, small": 3, 'dog "big"': 3})),
    Case("meta_csv_latin1.zip", Refused("UTF-8, or declare its ⟦encoding⟧", ("metadata.csv",))),
    Case("meta_csv_latin1.zip", Read({"café": 3, "dog": 3}), {"encoding": "latin-1"}),
    Case("meta_jsonl_int.zip", Read({"0": 3, "1": 3})),
    Case("meta_jsonl_array.zip", Refused("one object a line", ("metadata.jsonl line 1",))),
    Case("meta_csv_floatlabel.zip", Read({"0": 3, "1": 3})),
    Case("meta_csv_missingfile.zip", Read(CATS.classes, notices={"missing_files": 1})),
    Case("meta_csv_extrafile.zip", Refused("names this image", ("img_5.png",))),
    Case("meta_csv_extrafile.zip", Read({"cat": 3, "dog": 2}, notices={"unreadable_left_out": 1}), SKIP),
    Case("meta_csv_duprow.zip", Refused("named twice", ("metadata.csv line 8, as metadata.csv line 3",))),
    Case("meta_csv_emptylabel.zip", Refused("column label is empty", ("metadata.csv line 5",))),
    Case("meta_csv_filename_class.zip", CATS),
    Case("meta_csv_image_path_target.zip", CATS),
    *_grouped("meta_csv_patient_id.zip", "patient", 3, CATS.classes),
    *_grouped("meta_csv_account.zip", "account", 2, CATS.classes, 3),
    Case(
        "meta_csv_account.zip",
        Read(CATS.classes, unit=("account", 2), notices={"unused_columns": 1}),
        {"records_per_unit": 3},
    ),
    Case("b_labels_csv_flat.zip", Refused("Rename it to metadata.csv", ("labels.csv",))),
    Case("b_labels_csv.zip", Refused("second source beside the folders", ("labels.csv",))),
    Case("meta_csv_backslash.zip", Read(CATS.classes, notices={"backslashes": 6})),
    *_grouped("meta_group_only.zip", "group", 4, {"cat": 4, "dog": 4}),
    Case("meta_csv_split.zip", Read(CATS.classes, CATS.classes)),
    Case("b_meta_nfc_files_nfd.zip", CATS),
]

ARCHIVES: Final = [
    *(Case(file, CATS) for file in ("folders.zip", "folders_wrapped.zip", "zip_dir_entries.zip", "tar_dot.tar.gz")),
    *(Case(file, CATS) for file in ("tar_dot.tar", "tar_names.tar.gz", "tar_wrapped.tar.gz")),
    *(Case(file, CATS) for file in ("folders.tar.bz2", "folders.tar.xz")),
    Case("tar_macos.tar.gz", Read(CATS.classes, notices={"ignored_files": 2})),
    Case("b_readme.zip", Read(CATS.classes, notices={"ignored_files": 3})),
    Case("junk_desktop.zip", Read(CATS.classes, notices={"ignored_files": 5})),
    Case("junk_checkpoints.zip", Read(CATS.classes, notices={"ignored_files": 1})),
    Case("folders_emptyclass.zip", Read(CATS.classes, notices={"empty_classes": 1})),
    Case("folders_flat.zip", Refused("These layouts work")),
    Case("folders_backslash2.zip", Read(CATS.classes, notices={"backslashes": 6})),
    Case("b_latin1_names.zip", Refused("cannot be read for certain", ("caf\ufffd/0.png",))),
    Case("b_latin1_names.zip", Read({"café": 3, "dog": 3}), {"encoding": "latin-1"}),
    Case("b_utf8_names.zip", Read({"a%20b": 3, "café au lait": 3, "🐕": 3})),
    Case("zip_encrypted.zip", Refused("encrypted")),
    Case("zip_duplicate.zip", Refused("occurs twice", ("cat/0.png",))),
    Case("zip_nested.zip", Refused("another archive", ("inner.zip",))),
    Case("zip_traversal.zip", Refused("acts as a path", ("../../cat/9.png",))),
    Case("zip_absolute.zip", Refused("acts as a path", ("/cat/9.png",))),
    Case("zip_bzip2.zip", Refused("unusual compression")),
    Case("zip_lzma.zip", Refused("unusual compression")),
    Case("zip_ratio.zip", Refused("more than 100 times")),
    Case("zip_empty.zip", Refused("no image in it")),
    Case("zip_cut.zip", Refused("damaged")),
    Case("tar_symlink.tar", Refused("a link", ("cat/9.png",))),
    Case("tar_traversal.tar", Refused("acts as a path", ("../cat/9.png",))),
    Case("tar_cut.tar", Refused("damaged")),
    Case("zero.zip", Refused("is empty")),
    Case("text.zip", Refused("This is neither an NPZ")),
]

SPLITS: Final = [
    Case("split_lower.zip", Read(CATS.classes, CATS.classes)),
    Case("split_capitals.zip", Read(CATS.classes, CATS.classes, notices={"splits_read": 2})),
    Case("split_val.zip", Read(CATS.classes, CATS.classes, notices={"ignored_split": 6})),
    Case("b_split_flat.zip", Refused("without classes")),
    Case("b_bus_test.zip", Refused("is it a class or a split?", ("test/",))),
    Case("b_bus_test.zip", Read({"bus": 3, "test": 3}), {"class_names": "bus,test"}),
    Case("b_vehicles.zip", Refused("is it a class or a split?", ("train/",))),
    Case("b_class_named_train.zip", Read({"bus": 4, "tram": 4})),
    Case("b_test_missing_class.zip", Read({"a": 3, "b": 3, "c": 3}, {"a": 2, "b": 0, "c": 2})),
    Case("split_only_test.zip", Refused("no training images")),
    Case("b_nfd_train_nfc_test.zip", Read({"café": 3, "dog": 3}, {"café": 2, "dog": 2})),
    Case("test_in_train.zip", Read(CATS.classes, CATS.classes, notices={"test_in_train": 2})),
]

LABELS: Final = [
    Case("b_noncontig_small.npz", Read({"3": 3, "77": 3, "999": 3})),
    Case("b_labels_1based.npz", Read({"1": 3, "2": 3, "3": 3})),
    Case("labels_float.npz", TWO),
    Case("labels_float_nan.npz", Refused("NaN")),
    Case("labels_bool.npz", Read({"false": 4, "true": 4})),
    Case("labels_bytes.npz", Read({"cat": 4, "dog": 4})),
    Case("labels_str.npz", Read({"cat": 4, "dog": 4})),
    Case("labels_onehot.npz", TWO),
    Case("labels_onehot_soft.npz", Refused("One-hot")),
    Case("labels_multi.npz", Refused("several labels")),
    Case("labels_n1.npz", TWO),
    Case("labels_negative.npz", Refused("negative")),
    Case("labels_short.npz", Refused("7 labels for 8 images")),
    Case("labels_one_class.npz", Read({"0": 8})),
    Case("imbalanced.npz", Read({"0": 121, "1": 1}, notices={"imbalanced_classes": 1, "single_image_classes": 1})),
    Case("folders_oneimgclass.zip", Read({"cat": 4, "dog": 4, "horse": 1}, notices={"single_image_classes": 1})),
    Case("b_conflict_labels.zip", Read({"cat": 3, "dog": 4}, notices={"conflicting_labels": 1})),
    Case("repeated_images.zip", Read({"cat": 5, "dog": 3}, notices={"repeated_images": 2})),
]

ARRAYS: Final = [
    *(Case(f"key_{kind}.npz", TWO) for kind in ("images_labels", "x_y", "capital_X_y", "data_targets", "data_labels")),
    Case("key_unknown.npz", Refused("kinds, pics")),
    Case("key_medmnist.npz", Read(TWO.classes, TWO.classes, notices={"ignored_arrays": 2})),
    Case("key_keras.npz", Read(TWO.classes, {"0": 2, "1": 2})),
    Case("class_names.npz", Read({"cat": 4, "dog": 4})),
    *_grouped("groups.npz", "group", 4, TWO.classes),
    Case("flat784.npz", Read(TWO.classes, size=(28, 28, 1), notices={"flat_images": 1})),
    Case("flat64.npz", Read(TWO.classes, size=(8, 8, 1), notices={"flat_images": 1})),
    Case("uint16.npz", Refused("⟦prepare_size⟧ with ⟦prepare_window⟧")),
    Case("uint16.npz", Read(TWO.classes, size=(8, 8, 1), notices={"window_applied": 8}), WINDOW),
    Case("float255.npz", Read(TWO.classes, notices={"floats_to_255": 8})),
    Case("float01.npz", TWO),
    Case("int64.npz", TWO),
    Case("rgb.npz", Read(TWO.classes, size=(8, 8, 3))),
    Case("nchw.npz", Read(TWO.classes, size=(8, 8, 3), notices={"channels_first": 1})),
    Case("npy_pair.tar", TWO),
    Case("npy_alone.npy", Refused("without labels")),
    Case("nan.npz", Refused("Image 3 has a value that is no number (NaN)")),
    Case("object_pickle.npz", Refused("Python objects")),
    Case("one.npz", Refused("too few")),
    Case("five.npz", Read({"0": 3, "1": 2})),
    Case("empty_array.npz", Refused("empty")),
    Case("two_pixels.npz", Refused("4 to 256 pixels")),
    Case("strip.npz", Read(TWO.classes, size=(24, 8, 1))),
    Case("mnist_like.csv", Refused("numpy.savez_compressed")),
    Case("idx.tar", Read(TWO.classes, {"0": 2, "1": 2})),
    Case("pq_int.parquet", Read({"0": 3, "1": 3})),
    Case("pq_words.parquet", Read({"a": 3, "b": 3})),
    Case("pq_classlabel.parquet", CATS),
    Case("pq_boollabel.parquet", Read({"false": 3, "true": 3})),
    Case("pq_floatlabel.parquet", Read({"0": 3, "1": 3})),
    *_grouped("pq_group.parquet", "group", 3, {"0": 3, "1": 3}),
    Case("pq_shards.zip", Read({"0": 6, "1": 6}, {"0": 3, "1": 3})),
    Case("pq_shards_diffschema.zip", Refused("train-00001-of-00002.parquet are words")),
    Case("pq_shards_diffschema.zip", Refused("train-00000-of-00002.parquet are integers")),
    Case("pq_paths.parquet", Refused("no image bytes")),
    Case("pq_cut.parquet", Refused("damaged")),
    Case("wds_cls.tar", CATS),
    Case("wds_json.tar.gz", Read({"0": 3, "1": 3})),
    Case("b_wds_upper.tar", CATS),
    Case("b_wds_dots.tar", Refused("a key ends at the first dot", ("scan.v1.0001.png",))),
    Case("wds_missing.tar", Refused("has no label", ("0003.png",))),
    Case("wds_split.tar", Read(CATS.classes, CATS.classes)),
]

IMAGES: Final = [
    *_damaged("folders_truncjpg.zip", "cat/9.jpg"),
    *_damaged("folders_truncpng.zip", "cat/9.png"),
    *_damaged("folders_zerobyte.zip", "cat/9.png"),
    *_damaged("folders_notimage.zip", "cat/9.png", "This is a web page"),
    *_damaged("huge_png.zip", "cat/9.png"),
    *_prepared("folders_gif.zip", _changed("frame_selected")),
    *_prepared("rgba.zip", _changed("transparency_removed", size=(8, 8, 3))),
    Case("rgba.zip", _changed("transparency_removed"), {**PREPARED, "prepare_colour": "grey"}),
    *_prepared("la.zip", _changed("transparency_removed")),
    Case("cmyk.zip", _changed("channels_converted", size=(8, 8, 3)), {**PREPARED, "prepare_colour": "rgb"}),
    *_prepared("cmyk.zip", CATS),
    *_prepared("palette.zip", _changed("channels_converted", size=(8, 8, 3))),
    Case("palette.zip", _changed("channels_converted", size=(8, 8, 1)), {**PREPARED, "prepare_colour": "grey"}),
    *_prepared("one_bit.zip", _changed("channels_converted")),
    *_prepared("webp.zip", CATS),
    *_prepared("bmp.zip", CATS),
    *_prepared("tiff_pages.zip", _changed("frame_selected")),
    Case("rgb_png.zip", Read(CATS.classes, size=(8, 8, 3))),
    Case("grey_jpeg.zip", CATS),
    Case("png16.zip", Refused("⟦prepare_window⟧"), PREPARED),
    Case("png16.zip", _changed("window_applied"), WINDOW),
    Case("upper_case.zip", CATS),
    Case("wrong_ending.zip", CATS),
    Case("no_ending.zip", CATS),
    Case("strips.zip", Read(CATS.classes, size=(24, 8, 1))),
    Case("strips.zip", Read(CATS.classes, size=(96, 48, 1)), {"prepare_size": "96x48"}),
    *_prepared("sizes_mixed.zip", Read(CATS.classes, notices={"resized": 4}), f"8 to 16 pixels: {ONE_SIZE}"),
    *_prepared(
        "grey_and_rgb.zip",
        Read({"cat": 4, "dog": 4}, size=(8, 8, 3), notices={"channels_converted": 6}),
        "partly grey (6), partly RGB (2)",
    ),
    Case(
        "grey_and_rgb.zip",
        Read({"cat": 4, "dog": 4}, size=(8, 8, 1), notices={"channels_converted": 2}),
        {**PREPARED, "prepare_colour": "grey"},
    ),
    Case("strips.zip", Read(CATS.classes, size=(8, 8, 1), notices={"proportions_changed": 6}), PREPARED),
    Case("exif_turned.zip", Read({"cat": 4, "dog": 4}, size=(12, 16, 1), notices={"orientation_applied": 2})),
    Case("constant_images.zip", Read({"cat": 4, "dog": 3}, notices={"constant_images": 1})),
]

DICOM: Final = "This is a DICOM file, which is read once you choose one size for all: "
CHEST: Final = {"NORMAL": 6, "PNEUMONIA": 6}

REPORTS: Final = [
    Case("apng.zip", Refused("Its first frame is read by `datalens prepare`", ("cat/0.png",))),
    Case("apng.zip", _changed("frame_selected"), PREPARED),
    Case("avif.zip", Refused("This is an AVIF picture, which is not read. Export it", ("cat/0.avif",))),
    Case("avif.zip", Refused("This is an AVIF picture", ("dog/2.avif",)), PREPARED),
    Case("case_labels.zip", Read({"Cat": 3, "cat": 3, "dog": 5}, notices={"similar_classes": 2})),
    Case("csv_label_spaces.zip", Read({"Cat": 1, "Dog": 1, "cat": 2, "dog": 2}, notices={"similar_classes": 2})),
    Case("csv_patient_case.zip", Refused(f"one patient has up to 3 training images. {ASKS}")),
    Case(
        "csv_patient_case.zip",
        Read(CATS.classes, unit=("patient", 2), notices={"keys_joined": 2}),
        {"records_per_unit": 3},
    ),
    Case("dcm_dicomdir.zip", Refused(DICOM, ("cat/0.dcm",))),
    Case("dcm_dicomdir.zip", Read(CATS.classes, notices={"ignored_files": 1}), PREPARED),
    Case("dcm_nopreamble.zip", CATS, PREPARED),
    Case("dcm_nopreamble_all.zip", Refused(DICOM, ("cat/0.dcm",))),
    Case("dcm_nopreamble_all.zip", Read({"cat": 4, "dog": 4}), PREPARED),
    Case("dcm_presentation.zip", Refused("Presentation State” and has no pixels", ("cat/ps.dcm",)), PREPARED),
    Case("dcm_presentation.zip", _changed("unreadable_left_out", 1), {**PREPARED, **SKIP}),
    Case("deflate64.zip", Refused("unusual compression, Deflate64 (Windows Explorer")),
    Case("heic_as_jpg.zip", Refused("This is a HEIC picture", ("cat/IMG_0001.jpg",))),
    Case("heic_as_jpg.zip", Refused("Export it as JPEG", ("cat/IMG_0001.jpg",)), PREPARED),
    Case("heic_as_jpg.zip", Read(CATS.classes, notices={"unreadable_left_out": 1}), SKIP),
    Case("jpg_as_heic.zip", Read({"cat": 4, "dog": 3})),
    Case("jpg_mpo.zip", Read(CATS.classes, size=(16, 16, 3))),
    Case("jpg_mpo.zip", Read(CATS.classes, size=(8, 8, 3)), PREPARED),
    Case("person_in_names.zip", Read(CHEST, CHEST, notices={"persons_in_names": 3})),
    Case("pets.rar", Refused("This is a RAR archive, which is not read. Pack the images as a zip or a tar")),
    Case("pq_listimage.parquet", Refused("a list of images. Write one image into each row")),
    Case("pq_unlabelled_test.zip", Read(CATS.classes, notices={"unlabelled_test": 6})),
]

CASES: Final = [*PERSONS, *PERSONS_IN_SPLITS, *METADATA, *ARCHIVES, *SPLITS, *LABELS, *ARRAYS, *IMAGES, *REPORTS]


def _rule(case: Case) -> tuple[str, ...]:
    answer = case.answer
    return (*([answer.sentence] if isinstance(answer, Refused) else answer.notices), *sorted(case.choices))


RULES: Final = list({_rule(case): case for case in CASES}.values())
"""One file for each sentence, notice and choice: enough where the readers are reached in another way."""
