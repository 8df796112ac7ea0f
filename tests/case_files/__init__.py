"""Files as people make them, written by code; `tests/input_cases.py` has the right answer to each."""

from . import persons
from .registry import MAKERS, case_path

__all__ = ["MAKERS", "case_path", "persons"]
