"""Reads secrets from files: a variable with `_FILE` behind the name of a secret setting names the file of its value.

Container engines, Kubernetes and systemd hand secrets out as files, which no list of processes and no dump of an
environment shows. No error shows a value, nor the path: somebody may have written the secret in its place.
"""

import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final

SUFFIX: Final = "_FILE"
"""Behind the name of a variable: it names a file with the value."""

_LONGEST: Final = 65_536
"""Bytes of a value; whoever names a disk by mistake does not have it read."""


class Secret:
    """Marks a setting as secret, so that it may stand in a file, and is left out where settings are printed."""


def read_secrets(variables: Iterable[str], given: Container[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Read the values of those secret variables that have a file.

    Args:
        variables: Names of the secret variables, in capital letters.
        given: Those that have a value already, whose files are not read.

    Returns:
        Values by the names of the variables.

    Raises:
        ValueError: A variable is set beside its file, or the file cannot be used.
    """
    written = {name.upper(): value for name, value in environment.items()}
    found = {}
    for variable in variables:
        named = f"{variable}{SUFFIX}"
        if named not in written:
            continue
        if variable in written:
            raise ValueError(f"{variable} and {named} are both set; remove one of them.")
        if variable not in given:
            found[variable] = _read(named, Path(written[named]))
    return found


def _read(variable: str, path: Path) -> str:
    """Read the one line of a file."""
    try:
        if not path.is_file():
            raise ValueError(f"{variable} names no file.")
        with path.open("rb") as file:
            content = file.read(_LONGEST + 1)
        value = content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"The file that {variable} names cannot be read: {os.strerror(error.errno or 0)}.") from None
    except UnicodeDecodeError:
        raise ValueError(f"The file that {variable} names is no text in UTF-8.") from None
    if not value or not value.isprintable() or len(content) > _LONGEST:
        raise ValueError(f"The file that {variable} names must hold the value alone, on one line.")
    return value
