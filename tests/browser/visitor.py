"""Somebody at a browser: what they do often, and what their pages complain about.

Nobody acts on a page before its scripts have run: a click that comes earlier is not heard.
"""

import functools
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect

from tests.cli.service import RunningService

AXE = files("axe_playwright_python") / "axe.min.js"
JOB_MILLISECONDS = 240_000
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 860}
SEEN_WHOLE = "(table) => table.scrollWidth <= table.clientWidth"
ACTIONS = ("check", "click", "fill", "focus", "press", "select_option", "set_input_files")


def after_the_scripts(action: Callable[..., Any]) -> Callable[..., Any]:
    """The same action on an element, once the scripts of its page have run."""

    @functools.wraps(action)
    def act(element: Locator, *arguments: Any, **options: Any) -> Any:
        # With its element, the page that a link led to is there. Modules run before its content counts as loaded.
        element.wait_for(state="attached")
        element.page.wait_for_load_state("domcontentloaded")
        return action(element, *arguments, **options)

    return act


class Visitor:
    """A page of a browser on a service.

    Attributes:
        page: Of Playwright.
        screenshots: Folder for pictures of pages.
        complaints: Errors in scripts, messages about blocked content, and requests to other places.
    """

    def __init__(self, page: Page, service: RunningService, screenshots: Path) -> None:
        self.page = page
        self.service = service
        self.complaints: list[str] = []
        self.screenshots = screenshots
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)

    def sign_in(self) -> None:
        self.page.goto(self.service.url + "/sign-in")
        self.page.get_by_label("API key").fill(self.service.api_key)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(self.service.url + "/")

    def upload(self, path: Path, epsilon: str = "10", name: str = "Digits") -> str:
        """Upload a file by the form; id of the data set."""
        self.page.goto(f"{self.service.url}/datasets/new")
        self.page.locator("#file").set_input_files(path)
        self.page.get_by_label("Name", exact=True).fill(name)
        self.page.get_by_label("Lifetime privacy budget ε").fill(epsilon)
        self.page.get_by_role("button", name="Upload and check").click()
        self.confirm()
        expect(self.page.get_by_role("heading", name="Checked and stored")).to_be_visible()
        return str(self.page.get_by_role("link", name="Look at the data set").get_attribute("href")).split("/")[-1]

    def confirm(self) -> None:
        """Publish the class names that the page shows."""
        self.page.get_by_role("button", name="Publish these class names").click()

    def priced(self) -> None:
        """Wait until the price on the page is the one of the form."""
        expect(self.page.locator("#price-part")).not_to_have_attribute("aria-busy", "true")

    def accept(self) -> None:
        """Tick that budget is spent on what is of little use, where the plan says that it is."""
        accepts = self.page.locator("#accept-low-utility")
        if accepts.count():
            expect(self.page.get_by_role("button", name="Submit job")).to_be_disabled()
            accepts.check()

    def submit(self) -> str:
        """Submit the job that is planned; its id."""
        self.priced()
        self.accept()
        self.page.get_by_role("button", name="Submit job").click()
        self.page.wait_for_url(re.compile("/jobs/job_"))
        return self.page.url.split("/")[-1]

    def shows(self, name: str) -> None:
        """A picture of the page; in light and dark axe finds nothing wrong, and on a phone nothing is cut off."""
        # Its words can be seen before its scripts have run.
        self.page.wait_for_load_state("load")
        self.looks(name)
        self._is_accessible(name)
        self.page.emulate_media(color_scheme="dark")
        self._is_accessible(name, "color-contrast")
        self.page.emulate_media(color_scheme="light")
        self.fits(name, PHONE)
        self.page.set_viewport_size(DESK)  # type: ignore[arg-type]

    def violations(self, *rules: str) -> list[str]:
        """What axe finds wrong with the page as it is, by all rules or those that are named."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text() + "; null")
        chosen = {"iframes": False} | ({"runOnly": list(rules)} if rules else {})
        found: dict[str, Any] = self.page.evaluate("(chosen) => axe.run(chosen)", chosen)
        return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]

    def looks(self, name: str) -> None:
        """A picture of the page on a desk, where it fits."""
        self.fits(name, DESK)
        self.page.screenshot(path=self.screenshots / f"{name}.png", full_page=True)

    def fits(self, name: str, size: Any) -> None:
        """The page is no wider than such a screen."""
        self.page.set_viewport_size(size)
        wide, screen = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen, f"{name} is {wide} wide on {screen}"

    def _is_accessible(self, name: str, *rules: str) -> None:
        wrong = self.violations(*rules)
        assert not wrong, f"{name}: {wrong}"

    def _heard(self, message: ConsoleMessage) -> None:
        # Chromium reports every refused request here as well; what the page makes of those is tested.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.service.url + "/", "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")
