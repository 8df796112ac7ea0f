"""The API reference in a closed network: all of it is there, and nothing is asked for elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Response, Route, expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

SECTIONS = [
    "uploads",
    "datasets",
    "plans",
    "jobs",
    "downloads",
    "generators",
    "audits",
    "access",
    "webhooks",
    "health",
    "problems",
]


@pytest.fixture
def closed(open_browser: Callable[..., Visitor]) -> Iterator[Visitor]:
    """A visitor in a closed network: whatever is not this service cannot be reached. Nobody has signed in."""
    visitor = open_browser()
    home = urlsplit(visitor.service.url).netloc

    def pass_home(route: Route) -> None:
        if urlsplit(route.request.url).netloc == home:
            route.continue_()
        else:
            visitor.complaints.append(f"asked for {route.request.url}")
            route.abort("internetdisconnected")

    visitor.page.context.route("**/*", pass_home)
    visitor.page.add_init_script(
        "addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.blockedURI}`))"
    )
    yield visitor
    assert visitor.complaints == []


def test_all_sections_are_readable_in_a_closed_network(closed: Visitor) -> None:
    page = closed.page
    policies: list[str | None] = []
    page.on("response", lambda reply: policies.append(policy(reply)) if is_page(reply) else None)
    page.goto("/docs")
    expect(page.get_by_role("heading", name="API reference")).to_be_visible()
    closed.shows("23-reference")
    for section in SECTIONS:
        page.goto(f"/docs/{section}")
        expect(page.get_by_role("heading", level=1)).to_have_text(section, ignore_case=True)
        assert page.locator("article.operation h2").count() >= 1
        assert closed.violations() == []
    page.goto("/sign-in")
    assert len(set(policies)) == 1
    assert "script-src 'self'" in str(policies[0])


def is_page(reply: Response) -> bool:
    return reply.request.resource_type == "document"


def policy(reply: Response) -> str | None:
    return reply.header_value("content-security-policy")


def test_a_reader_finds_an_operation_and_what_it_takes(closed: Visitor) -> None:
    page = closed.page
    page.goto("/sign-in")
    page.get_by_role("link", name="API reference").click()
    page.get_by_role("link", name=re.compile("Submit a training job")).click()
    page.wait_for_url("**/docs/jobs#createJob")
    operation = page.locator("#createJob")
    expect(operation).to_be_in_viewport()
    expect(operation.get_by_text("POST", exact=True)).to_be_visible()
    expect(operation).to_contain_text("--json")
    expect(operation).to_contain_text("Idempotency-Key")
    closed.shows("24-reference-jobs")
    operation.get_by_role("link", name="TrainingRequest").click()
    expect(page.locator("#TrainingRequest")).to_be_in_viewport()
    page.locator("#TrainingRequest").get_by_role("link", name="RequestedSpec").click()
    expect(page.locator("#RequestedSpec")).to_contain_text("ε this job may spend at δ.")
    operation.get_by_text("Problems it may answer with").click()
    operation.get_by_role("link", name="Privacy budget exceeded").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Privacy budget exceeded")
    closed.shows("25-problem")


def test_it_needs_no_script(chromium: Browser, visitor: Visitor) -> None:
    context = chromium.new_context(base_url=visitor.service.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/docs/jobs#createJob")
    assert "This page needs JavaScript" not in page.content()
    operation = page.locator("#createJob")
    operation.get_by_text("Problems it may answer with").click()
    expect(operation.get_by_role("link", name="Privacy budget exceeded")).to_be_visible()
    context.close()


def test_who_has_signed_in_keeps_the_way_back(owner: Visitor) -> None:
    page = owner.page
    page.get_by_role("link", name="API reference").click()
    page.wait_for_url("**/docs")
    page.get_by_role("link", name="Jobs").first.click()
    page.wait_for_url("**/jobs")
