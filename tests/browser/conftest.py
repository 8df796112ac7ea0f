"""A real service, a real Chromium, and pages that may not complain.

Screenshots go to build/screenshots, which CI keeps.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, expect, sync_playwright

from child_programs import in_this_process
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Split
from datalens_service.data.digits import digits
from deployments.reverse_proxy import ReverseProxy
from in_process_service import InProcessService
from other_programs import find_program
from repository import ROOT
from tests.browser.visitor import ACTIONS, DESK, Visitor, after_the_scripts
from tests.cli.service import RunningService, service

__all__ = ["service"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--headless", "--no-sandbox")
PATIENCE_MILLISECONDS = 120_000


@pytest.fixture(scope="session", autouse=True)
def _scripts_run_first() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ACTIONS:
            patch.setattr(Locator, name, after_the_scripts(getattr(Locator, name)))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = find_program(*PROGRAMS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=PATIENCE_MILLISECONDS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = ROOT / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Proxied:
    """A service as browsers reach it."""

    url: str
    api_key: str


@pytest.fixture(scope="module")
def proxied_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """One that nobody has used, behind a real proxy with TLS; it was told nothing: nginx says where it shows it.

    Whoever visits it complains of every request that leaves the path prefix.
    """
    find_program("nginx")
    folder = tmp_path_factory.mktemp("proxied")
    running = RunningService(folder / "service" / "data")
    proxy = ReverseProxy("nginx", folder, running.port)
    yield Proxied(proxy.url, running.api_key)
    proxy.stop()
    running.stop()


@pytest.fixture
def service_without_worker(tmp_path: Path, sqlite_template: Path) -> Iterator[InProcessService]:
    """A new one, in which a job goes as far as its test takes it."""
    shutil.copy(sqlite_template, tmp_path)
    running = InProcessService(Settings(data_dir=tmp_path))
    with in_this_process():
        yield running
    running.stop()


@pytest.fixture(scope="module")
def train(request: pytest.FixtureRequest) -> Split:
    """Handwritten digits that no other file of tests uploads: all uploads of the same images share one budget."""
    images, labels = digits().train.images.copy(), digits().train.labels
    images[:, 0, 0] = sorted(Path(__file__).parent.glob("test_*.py")).index(request.path)
    return Split(images, labels)


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory, train: Split) -> Path:
    """Digits without test images, so that jobs have nothing to measure and end soon."""
    path = tmp_path_factory.mktemp("upload") / "digits.npz"
    np.savez_compressed(path, images=train.images, labels=train.labels)
    return path


@pytest.fixture(scope="module")
def upload_with_test_images(tmp_path_factory: pytest.TempPathFactory, train: Split) -> Path:
    """Fewer of them, beside the test images of the digits."""
    path, test = tmp_path_factory.mktemp("upload") / "digits.npz", digits().test
    assert test is not None
    arrays = {"train_images": train.images[:700], "train_labels": train.labels[:700]}
    np.savez(path, **arrays, test_images=test.images, test_labels=test.labels)
    return path


@pytest.fixture
def visitor(chromium: Browser, service: RunningService, screenshots: Path) -> Iterator[Visitor]:
    """Somebody with a browser of their own; in the end, none of their pages has complained."""
    context = chromium.new_context(
        base_url=service.url, viewport=DESK, reduced_motion="reduce", ignore_https_errors=True
    )
    page = context.new_page()
    # A loaded machine may take long to draw; nothing here measures speed.
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.set_default_navigation_timeout(PATIENCE_MILLISECONDS)
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    made = Visitor(page, service, screenshots)
    yield made
    context.close()
    assert made.complaints == []


@pytest.fixture
def owner(visitor: Visitor) -> Visitor:
    """A visitor who has signed in."""
    visitor.sign_in()
    return visitor
