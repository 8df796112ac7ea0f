"""Adding a product module as one new file would: from its source, under a name in the product's package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def drop_in(monkeypatch: pytest.MonkeyPatch, folder: Path, package: str, source: str) -> ModuleType:
    """Import `source` as module `extension` of a package, for the length of a test.

    Args:
        monkeypatch: Takes it out again.
        folder: Where the file is written.
        package: Dotted name of the room it belongs to.
        source: Of the module.
    """
    path = folder / "extension.py"
    path.write_text(source)
    name = f"{package}.extension"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
