"""Whom ε protects is said by one function: no other sentence of any page, file or command pairs ε with persons.

Everything that a visitor, a partner or somebody at a terminal can read of two data sets is collected, one of single
images and one of households. A page that is added later is found by its link.
"""

import html
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import numpy as np
import pytest

from datalens_service.privacy.guarantee import card_guarantee

from .service import RunningService, random_numbers_of

CLASSES: Final = ("--class-names", "dim,bright")
HOUSEHOLDS: Final = (*CLASSES, "--unit", "household", "--records-per-unit", 5)
MOMENTS: Final = ("--method", "moments", "--set", "subspace_dimensions=3", "--epsilon", 1, "--synthetic-images", 40)
_PERSONS: Final = re.compile(
    r"\b(everybody|everyone|anybody|anyone|nobody|somebody|someone|persons?|people|individuals?|patients?|subjects?)\b",
    re.IGNORECASE,
)
_EPSILON: Final = re.compile(r"ε|\bepsilon\b", re.IGNORECASE)
_PROMISE: Final = re.compile(r"\b(guarantees?|guaranteed|protects?|protected|promises?|promised)\b", re.IGNORECASE)
_VALUE: Final = re.compile(r"ε\s*(=|of)?\s*\d")
_ALLOWED: Final = tuple(
    map(
        re.compile,
        (
            # It names its unit, and what each figure is about.
            r"Whoever knows everything about one (record|household) but one of two equally likely values",
            # Who can recompute ε, not whom it protects.
            r"anybody can recompute (both and )?ε",
            # What a job happened to cost one unit.
            r"[Ii]ndividual ε|individual epsilon|realised individual",
        ),
    )
)


class World(NamedTuple):
    """One data set with a job that has ended, and everything that can be read of them, by where it stands."""

    unit: str
    guarantees: frozenset[str]
    texts: Mapping[str, str]
    cards: Mapping[str, Any]


def write_images(path: Path, *, households: bool) -> Path:
    rng = random_numbers_of(f"{__name__} {households}")
    labels = np.arange(2000) % 2
    images = rng.integers(0, 60, (2000, 8, 8), dtype=np.uint8)
    images[labels == 0, :4] += 150
    arrays = {"train_images": images[:1600], "train_labels": labels[:1600], "test_images": images[1600:]}
    grouped = {"train_groups": np.arange(1600) // 4} if households else {}
    np.savez_compressed(path, **arrays, test_labels=labels[1600:], **grouped)
    return path


@pytest.fixture(scope="module", params=["record", "household"])
def world(request: pytest.FixtureRequest, service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> World:
    from typer.testing import CliRunner

    from datalens_service.cli.app import app

    folder = tmp_path_factory.mktemp("world")

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.stdout

    grouped = request.param == "household"
    path, declared = write_images(folder / "images.npz", households=grouped), HOUSEHOLDS if grouped else CLASSES
    by = service.access
    uploaded = json.loads(run("datasets", "upload", path, "--epsilon", 3.3, *declared, "--json", *by))
    job = json.loads(run("jobs", "submit", uploaded["id"], *MOMENTS, "--no-evaluation", "--wait", "--json", *by))
    texts = dict(terminal(run, path, uploaded["id"], job["id"], declared, by, folder))
    with httpx.Client(base_url=service.url, follow_redirects=True, timeout=60) as browser:
        key = service.api_key
        browser.post("/sign-in", data={"key": key}).raise_for_status()
        texts |= dict(pages(browser))
        contents = dict(downloads(browser, key, uploaded["id"], job["id"]))
        texts |= {place: readable(content) for place, content in contents.items()}
        texts |= dict(plan_part(browser, uploaded["id"]))
    cards = {place: json.loads(content) for place, content in contents.items() if place.endswith("privacy.json")}
    return World(request.param, frozenset(guarantees(texts)), texts, cards)


def terminal(
    run: Callable[..., str], path: Path, dataset: str, job: str, declared: tuple[object, ...], by: Any, folder: Path
) -> Iterator[tuple[str, str]]:
    commands: dict[str, tuple[object, ...]] = {
        "datasets show": ("datasets", "show", dataset, *by),
        "datasets list": ("datasets", "list", *by),
        "jobs show": ("jobs", "show", job, *by),
        "jobs list": ("jobs", "list", *by),
        "jobs submit --dry-run": ("jobs", "submit", dataset, *MOMENTS, "--dry-run", *by),
        "plan": ("plan", "--data", path, *MOMENTS[:-2], *declared),
        "train": ("train", "--data", path, *MOMENTS, *declared, "--no-evaluation", "--out", folder / "out"),
        "verify": ("verify", folder / "out" / "privacy.json"),
    }
    for name, arguments in commands.items():
        yield f"datalens {name}", run(*arguments)


def pages(browser: httpx.Client) -> Iterator[tuple[str, str]]:
    """Every page that links lead to, from the first one and the one of consumers."""
    waiting, seen = ["/", "/releases", "/glossary"], set[str]()
    while waiting:
        address = waiting.pop()
        if address in seen or len(seen) > 80:
            continue
        seen.add(address)
        reply = browser.get(address)
        if "text/html" not in reply.headers["Content-Type"]:
            continue
        assert reply.status_code == 200, address
        yield address, readable(reply.text)
        links = map(html.unescape, re.findall(r'(?:href|src)="(/[^"#]*)', reply.text))
        # Reports are framed by their pages; `synthetic` and the like are read below.
        waiting += [link for link in links if re.match(r"/(datasets|jobs|releases|v1/jobs/[^/]+/report|\?|$)", link)]
    assert len(seen) > 8


def plan_part(browser: httpx.Client, dataset: str) -> Iterator[tuple[str, str]]:
    token = re.search(r'name="form-token" content="([^"]+)"', browser.get(f"/datasets/{dataset}/new-job").text)
    headers = {} if token is None else {"X-CSRF-Token": token[1]}
    form = {"preset": "fast", "epsilon": "0.05", "synthetic_images": "10", "seed": "0"}
    reply = browser.post(f"/datasets/{dataset}/plan", json=form, headers=headers)
    assert reply.status_code == 200, reply.text
    yield "the price of a plan", readable(reply.text)


def downloads(browser: httpx.Client, key: str, dataset: str, job: str) -> Iterator[tuple[str, str]]:
    headers = {"Authorization": f"Bearer {key}"}
    addresses = [
        f"/v1/datasets/{dataset}",
        f"/v1/datasets/{dataset}/privacy",
        f"/v1/jobs/{job}",
        f"/v1/jobs/{job}/dataset",
        *(f"/v1/jobs/{job}/report?format={kind}&audience={who}" for kind in ("json", "html") for who in READERS),
    ]
    for address in addresses:
        reply = browser.get(address, headers=headers)
        assert reply.status_code == 200, reply.text
        if reply.headers["Content-Type"] != "application/zip":
            yield address, reply.text
            continue
        with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
            for name in archive.namelist():
                if name.endswith((".md", ".json", ".html", "NOTICE", "LICENSE")):
                    yield f"{address}: {name}", archive.read(name).decode()


READERS: Final = ("owner", "releasable")


def readable(text: str) -> str:
    """What a person reads of a page, a block on each line; of JSON every text."""
    if text.lstrip().startswith(("{", "[")):
        return "\n".join(leaves(json.loads(text)))
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", text)
    text = re.sub(r'(?:aria-label|title|alt|content|placeholder)="([^"]*)"', r">\n\1\n<", text)
    inline = re.sub(r"</?(b|i|em|strong|code|a|span|small|sup|sub|time)\b[^>]*>", " ", text)
    lines = html.unescape(re.sub(r"<[^>]+>", "\n", inline)).split("\n")
    return "\n".join(line for line in (" ".join(each.split()) for each in lines) if line)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from (leaves(one) if isinstance(one, Mapping | list) else (f"{name}: {one}",))
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield str(value)


def guarantees(texts: Mapping[str, str]) -> Iterator[str]:
    """What the function says: of the card that was released, and where the interface has a field for it."""
    for text in texts.values():
        yield from re.findall(r"(?m)^guarantee: (.+)$", text)


def sentences(world: World) -> Iterator[tuple[str, str]]:
    """Everything else that is said, sentence by sentence."""
    for place, text in world.texts.items():
        rest = text
        for one in world.guarantees:
            rest = rest.replace(one, "")
        # Other jobs of the same service, and runs in a folder: the same words with other figures.
        rest = GUARANTEE.sub("", rest)
        for sentence in re.split(r"(?<=[.!?;])\s+|\n", rest):
            yield place, sentence


_WHOM: Final = (
    r"(?:training image by itself, with its label|household with all its training images, at most 5, and their labels)"
)
_FURTHER: Final = r"(?:, ε = [\d.]+ at the same δ where it is replaced|, unless the owner raises this limit)?"
_SEVERAL: Final = (
    r"(?:has more than one image among them is protected less: with five images, ε = [\d.]+ at the same δ"
    r"|counts as more than one household is protected less)"
)
_ALL_JOBS: Final = r"(?:all jobs on these images together, now and later, spend at most )?"
GUARANTEE: Final = re.compile(
    rf"The guarantee(?: of this job)? protects each {_WHOM}: {_ALL_JOBS}ε = [\d.]+ at δ = [\d.e-]+ where one "
    rf"(?:image|household) is left out and its place stays empty{_FURTHER}\. "
    rf"(?:Other jobs on the same images add to it\. )?Whoever {_SEVERAL}\."
)


def test_no_sentence_pairs_epsilon_with_persons(world: World) -> None:
    paired = [
        (place, sentence)
        for place, sentence in sentences(world)
        if _EPSILON.search(sentence) and _PERSONS.search(sentence)
        if not any(allowed.search(sentence) for allowed in _ALLOWED)
    ]
    assert paired == []


def test_no_other_sentence_promises_a_figure(world: World) -> None:
    promised = [
        (place, sentence)
        for place, sentence in sentences(world)
        if _VALUE.search(sentence) and _PROMISE.search(sentence)
    ]
    assert promised == []


def test_every_surface_states_the_guarantee(world: World) -> None:
    stating = {place for place, text in world.texts.items() if GUARANTEE.search(text)}
    kinds = ("/releases", "/jobs/job_", "/datasets/ds_", "the price of a plan", "datalens datasets show")
    kinds += (
        "datalens jobs show",
        "datalens jobs submit --dry-run",
        "datalens plan",
        "datalens train",
        "README.md",
        "datasheet.md",
    )
    kinds += ("croissant.json", "NOTICE", "format=html&audience=owner", "format=json&audience=releasable")
    assert [kind for kind in kinds if not any(kind in place for place in stating)] == []
    of_unit = "household" if world.unit == "household" else "training image by itself"
    archive = next(text for place, text in world.texts.items() if place.endswith(": README.md"))
    assert f"protects each {of_unit}" in archive


def test_the_sentence_in_an_archive_is_made_of_its_card(world: World) -> None:
    proof = next(place for place in world.texts if place.endswith(": privacy.json"))
    said = card_guarantee(world.cards[proof]["card"]["privacy"])
    beside = ("README.md", "datasheet.md", "croissant.json", "NOTICE")
    assert all(said in world.texts[proof.replace("privacy.json", name)] for name in beside)
    assert GUARANTEE.fullmatch(said)
