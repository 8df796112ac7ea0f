"""The pictures of pages in docs/, from a real service in a real Chromium: `python -m benchmarks.pictures FOLDER`.

MNIST (`python -m benchmarks.data mnist`) is uploaded, the preset `auto` runs at ε = 1 and `fast` at ε = 4 with a
short evaluation, `balanced` begins at ε = 4, and the pages are as they are then. Chromium has to be on the PATH. Takes
a quarter of an hour.
"""

from __future__ import annotations

import re
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from benchmarks.environment import ROOT, data_path
from datalens_service import Client

serving = runpy.run_path(str(ROOT / "examples" / "serve_and_download.py"))["serving"]

DESK: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 360, "height": 740}
PATIENCE: Final = 2_400_000
"""Milliseconds that a job may take."""
EVALUATION: Final = {"synthetic_images": 6000, "ceiling": False}
"""Little enough to be repeated, so that pages have an interval to show."""


class Photographer:
    """Somebody who goes through the pages with a camera.

    Args:
        page: Of a browser that nobody has signed in with.
        folder: Where the pictures go.
        client: Submits jobs with settings that no form has.
    """

    def __init__(self, page: Page, folder: Path, client: Client) -> None:
        self._page = page
        self._folder = folder
        self._client = client

    def sign_in(self, api_key: str) -> None:
        """By the form."""
        self._page.goto("/sign-in")
        self._page.get_by_label("API key").fill(api_key)
        self._page.get_by_role("button", name="Sign in").click()
        expect(self._page.get_by_role("button", name="Sign out")).to_be_visible()

    def reference(self) -> None:
        """The API reference."""
        self._page.goto("/docs")
        self._page.locator(".opblock").first.wait_for()
        self._take("reference", whole=False)

    def preparation(self) -> None:
        """The step of the upload in which images are brought to one size; nothing is sent."""
        page = self._page
        page.goto("/datasets/new")
        page.get_by_label("Prepare them").check()
        page.get_by_label("Size", exact=True).fill("64")
        page.get_by_label("Other shapes").select_option("crop")
        self._take_part("preparation", page.locator("#preparation"))

    def upload(self, path: Path) -> str:
        """Path of the page of the data set that was made."""
        page = self._page
        page.goto("/datasets/new")
        page.locator("#file").set_input_files(path)
        page.get_by_label("Name", exact=True).fill("MNIST")
        page.get_by_label("Lifetime privacy budget ε").fill("10")
        page.get_by_role("button", name="Upload and check").click()
        page.get_by_role("button", name="Publish these class names").click(timeout=PATIENCE)
        expect(page.get_by_role("heading", name="Checked and stored")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#upload-found img")).to_be_visible(timeout=PATIENCE)
        self._take("upload")
        return str(page.get_by_role("link", name="Look at the data set").get_attribute("href"))

    def finished_job(self, dataset: str) -> str:
        """A job of the preset `auto`, its report, and the page for partners; path of its page."""
        page, job = self._page, self._finish(dataset, "auto", 1.0)
        page.goto(job)
        self._take("job")
        self._take_part("quality", page.locator("section[aria-labelledby=quality]"))
        page.get_by_role("link", name="Report to pass on").click()
        report = page.frame_locator("iframe")
        expect(report.get_by_role("heading", name="Privacy report", exact=True)).to_be_visible()
        self._take("report", whole=False)
        self._take_part("anonymity", report.locator("section[aria-labelledby=anonymity]"))
        page.goto("/releases")
        expect(page.get_by_role("article")).to_have_count(1)
        self._take("releases")
        return job

    def viewer(self, job: str) -> None:
        """Images of one class, one of them enlarged."""
        page = self._page
        page.goto(f"{job}/images?label=3")
        page.get_by_label("Number, row by row").fill("12")
        page.get_by_role("button", name="Enlarge").click()
        expect(page.locator("img.enlarged")).to_be_visible()
        self._take("viewer")

    def comparison(self, dataset: str) -> None:
        """Two jobs side by side: `auto` at ε = 1 and `fast` at ε = 4."""
        self._finish(dataset, "fast", 4.0)
        page = self._page
        page.goto("/jobs")
        for box in page.get_by_role("checkbox").all():
            box.check()
        page.get_by_role("button", name="Compare two ticked jobs").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        self._take("comparison")

    def plan(self, dataset: str) -> None:
        """A plan that nobody submits."""
        self._plan(dataset, "Best-looking", "4")
        self._take("plan")
        self._page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        self._take("plan-phone")
        self._page.set_viewport_size(DESK)  # type: ignore[arg-type]

    def running_job(self, dataset: str) -> None:
        """A job at work in dark, and the pages of its data set meanwhile."""
        self._submit(dataset, "Balanced", "4")
        page = self._page
        expect(page.locator("#live-preview img")).to_be_visible(timeout=PATIENCE)
        page.emulate_media(color_scheme="dark")
        self._take("job-running-dark")
        page.emulate_media(color_scheme="light")
        page.goto(dataset)
        self._take("data-set")
        page.goto("/")
        self._take("data-sets", whole=False)

    def _plan(self, dataset: str, preset: str, epsilon: str) -> None:
        page = self._page
        page.goto(f"{dataset}/new-job")
        page.get_by_role("radio", name=preset).check()
        page.get_by_label("ε this job may spend", exact=True).fill(epsilon)
        expect(page.locator("#price-part")).not_to_have_attribute("aria-busy", "true")
        expect(page.locator(".leaves")).to_be_visible()

    def _finish(self, dataset: str, preset: str, epsilon: float) -> str:
        spec = {"preset": preset, "epsilon": epsilon, "evaluation": EVALUATION}
        job = self._client.submit(dataset.rpartition("/")[2], spec).wait()
        return f"/jobs/{job.id}"

    def _submit(self, dataset: str, preset: str, epsilon: str) -> None:
        self._plan(dataset, preset, epsilon)
        self._page.get_by_role("button", name="Submit job").click()
        self._page.wait_for_url(re.compile("/jobs/job_"))

    def _take(self, name: str, *, whole: bool = True) -> None:
        self._page.wait_for_load_state("networkidle")
        # The header sticks to the top of the view: in a whole page it would lie across the middle.
        self._page.evaluate("scrollTo(0, 0)")
        self._page.screenshot(path=self._folder / f"{name}.png", full_page=whole)

    def _take_part(self, name: str, part: Locator) -> None:
        self._page.wait_for_load_state("networkidle")
        part.screenshot(path=self._folder / f"{name}.png")


def photograph(browser: Browser, url: str, api_key: str, folder: Path) -> None:
    """All pictures, of a service that nobody has used."""
    context = browser.new_context(base_url=url, viewport=DESK, reduced_motion="reduce")  # type: ignore[arg-type]
    with Client(url, api_key) as client:
        photographer = Photographer(context.new_page(), folder, client)
        photographer.sign_in(api_key)
        photographer.reference()
        photographer.preparation()
        dataset = photographer.upload(data_path("mnist"))
        photographer.viewer(photographer.finished_job(dataset))
        photographer.comparison(dataset)
        photographer.plan(dataset)
        photographer.running_job(dataset)


def main(folder: Path) -> None:
    """Serve, look, and leave."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="datalens-") as data_dir,
        serving(Path(data_dir)) as (url, api_key),
        sync_playwright() as playwright,
    ):
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--headless", "--no-sandbox"])
        photograph(browser, url, api_key, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
