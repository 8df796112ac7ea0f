"""Generators that somebody brings along: data, never code.

A file is taken if safetensors reads it, its header names a kind and a schema that this product knows, and a process
of its own draws an image of each class from it.
"""

import hashlib
import json
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from safetensors import SafetensorError

from datalens_service.base.errors import InvalidInput, NotFound
from datalens_service.models.generators.generator import Generator
from datalens_service.services.synthetic_files import ImageRequest, make_file
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock
from datalens_service.store.disk import translated
from datalens_service.store.jobs import released_models
from datalens_service.store.jobs.released_models import StoredModel

MAXIMUM_BYTES: Final = 2**28
_YOUNG: Final = timedelta(days=1)
_ORIGIN: Final = "imported: this service did not train it, and no account here covers it"


def register(database: Database, data_dir: Path, path: Path, tenant_id: str, name: str | None) -> StoredModel:
    """Check a file and keep it.

    Args:
        data_dir: The file goes to its folder `generators`.

    Raises:
        InvalidInput: Not a generator of this product, or too large.
        WorkerUnavailable: This machine cannot draw from it.
    """
    if path.stat().st_size > MAXIMUM_BYTES:
        raise InvalidInput(f"The file is larger than {MAXIMUM_BYTES // 2**20} MiB.")
    content = path.read_bytes()
    card = _card(read_generator(path))
    _try(path, card)
    generator_id = released_models.new_id()
    place, card_place = locate_file(data_dir, generator_id), locate_card(data_dir, generator_id)
    try:
        with translated("The generator could not be kept; free the disk of ⟦DATALENS_DATA_DIR⟧."):
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place.write_bytes(content)
            card_place.write_text(json.dumps(card))
        digest = hashlib.sha256(content).hexdigest()
        return released_models.add_imported(
            database, generator_id, tenant_id, name=name or generator_id, card=card, sha256=digest
        )
    except BaseException:
        place.unlink(missing_ok=True)
        card_place.unlink(missing_ok=True)
        raise


def locate_file(data_dir: Path, generator_id: str) -> Path:
    return data_dir.absolute() / "generators" / f"{generator_id}.safetensors"


def locate_card(data_dir: Path, generator_id: str) -> Path:
    """Return the path of its card, for whoever draws from it."""
    return locate_file(data_dir, generator_id).with_suffix(".json")


def remove_files(data_dir: Path, generator_id: str) -> None:
    """Remove the files of an imported generator. Repeatable.

    Raises:
        StoreUnavailable: One could not be removed.
    """
    with translated("The generator could not be removed; look at the disk of ⟦DATALENS_DATA_DIR⟧."):
        locate_file(data_dir, generator_id).unlink(missing_ok=True)
        locate_card(data_dir, generator_id).unlink(missing_ok=True)


def remove_unregistered(database: Database, data_dir: Path) -> None:
    """Remove files of generators that were never registered, a day after they were written: by then nobody does."""
    folder = locate_file(data_dir, "any").parent
    youngest = read_clock(database) - _YOUNG
    for path in folder.glob("gen_*"):
        if datetime.fromtimestamp(path.stat().st_mtime, UTC) < youngest:
            with suppress(NotFound):
                released_models.get(database, path.stem)
                continue
            path.unlink(missing_ok=True)


def read_generator(path: Path) -> Generator:
    """A generator of anybody's file.

    Raises:
        InvalidInput: It is none.
    """
    try:
        return Generator.load(path)
    except (SafetensorError, InvalidInput, ValidationError, KeyError, ValueError, TypeError) as error:
        raise InvalidInput("The file is not a generator that this product has exported as safetensors.") from error


def _card(generator: Generator) -> dict[str, Any]:
    return {
        "origin": _ORIGIN,
        "kind": generator.kind,
        "schema": generator.schema.model_dump(mode="json"),
        "synthetic": True,
    }


def _try(path: Path, card: dict[str, Any]) -> None:
    """Draw once from it, in a process of its own: whatever breaks there breaks nothing here."""
    with tempfile.TemporaryDirectory() as folder:
        card_path = Path(folder) / "card.json"
        card_path.write_text(json.dumps(card))
        try:
            make_file(ImageRequest(path, card_path, 1, "npz"), Path(folder) / "one.npz")
        except ChildProcessError as error:
            raise InvalidInput(
                "No image can be drawn from this generator; its numbers do not fit its description."
            ) from error
