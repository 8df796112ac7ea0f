"""Files as people make them, written by code; `tests/input_cases.py` has the right answer to each."""

from . import archives, arrays, images, labels, metadata, persons, persons_in_splits, public_reports, splits, tables
from .registry import MAKERS, case_path

__all__ = [
    "MAKERS", "archives", "arrays", "case_path", "images", "labels", "metadata", "persons", "persons_in_splits",
    "public_reports", "splits", "tables",
]  # fmt: skip
