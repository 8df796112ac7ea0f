"""The contents of an installation: an SBOM by CycloneDX and a list of licences, from the metadata of the packages.

Only what users get: the project's own requirements and those of the named extras, with all that they need. Tools of
development are left out.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.exception import CycloneDxException
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "datalens-service"
EXTRAS = ("worker", "production")


def main(arguments: Sequence[str]) -> int:
    """Write both files into the folder that is the first argument; further ones are extras."""
    folder, extras = Path(arguments[0] if arguments else "build"), tuple(arguments[1:]) or EXTRAS
    folder.mkdir(parents=True, exist_ok=True)
    needs = resolve(extras)
    (folder / "sbom.json").write_text(write_sbom(needs) + "\n")
    (folder / "licenses.csv").write_text(write_licenses(needs))
    print(f"{len(needs) - 1} packages: {folder}/sbom.json, {folder}/licenses.csv")
    return 0


def resolve(extras: Sequence[str]) -> dict[str, set[str]]:
    """All packages that the project needs with these extras, each with what it needs itself."""
    needs: dict[str, set[str]] = {}
    waiting, visited = [(PROJECT, extra) for extra in ("", *extras)], set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in visited:
            continue
        visited.add((name, extra))
        for needed in _requirements(name, extra):
            needs.setdefault(name, set()).add(canonicalize_name(needed.name))
            waiting += [(canonicalize_name(needed.name), part) for part in ("", *needed.extras)]
        needs.setdefault(name, set())
    return needs


def write_sbom(needs: Mapping[str, set[str]]) -> str:
    """The packages as CycloneDX 1.6."""
    components = {name: _component(distribution(name)) for name in sorted(needs)}
    bom = Bom(components=(component for name, component in components.items() if name != PROJECT))
    bom.metadata.component = components[PROJECT]
    for name, needed in needs.items():
        bom.register_dependency(components[name], [components[one] for one in sorted(needed)])
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def write_licenses(needs: Mapping[str, set[str]]) -> str:
    """A table of names, versions and licences, as CSV."""
    packages = [distribution(name) for name in sorted(needs) if name != PROJECT]
    table = io.StringIO()
    rows = ((package.metadata["Name"], package.version, find_license(package)) for package in packages)
    csv.writer(table, lineterminator="\n").writerows([("package", "version", "licence"), *rows])
    return table.getvalue()


def find_license(package: Distribution) -> str:
    """Return the licence that a package states: an expression, its classifiers, or the first line of its text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", []) if one.startswith("License")]
    if classifiers:
        return ", ".join(classifiers)
    text = str(metadata.get("License") or "").strip()
    return text.splitlines()[0][:100] if text else "not stated"


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            yield needed


def _component(package: Distribution) -> Component:
    name = canonicalize_name(package.metadata["Name"])
    stated = find_license(package)
    try:
        terms = LicenseFactory().make_from_string(stated)
    except CycloneDxException:
        terms = License(name=stated)
    url = PackageURL("pypi", None, name, package.version)
    kind = ComponentType.APPLICATION if name == PROJECT else ComponentType.LIBRARY
    return Component(name=name, version=package.version, type=kind, purl=url, bom_ref=str(url), licenses=[terms])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
