"""The API reference in a closed network: all of it is there, and nothing is asked for elsewhere."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route, expect

from tests.browser.visitor import DESK, PHONE, Visitor

pytestmark = pytest.mark.browser


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


def test_a_reader_finds_an_operation_and_tries_it_in_a_closed_network(closed: Visitor) -> None:
    page = closed.page
    page.goto("/sign-in")
    page.get_by_role("link", name="API reference").click()
    operation = page.locator("#operations-datasets-listDatasets")
    operation.locator(".opblock-summary-control").click()
    expect(operation).to_contain_text("datasets:read")
    operation.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Authorize").click()
    page.locator(".modal-ux input").fill(closed.service.api_key)
    page.locator(".modal-ux").get_by_role("button", name="Apply credentials").click()
    page.locator(".modal-ux").get_by_role("button", name="Close", exact=True).click()
    with page.expect_response("**/v1/datasets*") as answer:
        operation.get_by_role("button", name="Execute").click()
    assert answer.value.status == 200
    expect(operation.locator(".curl-command")).to_contain_text("/v1/datasets")


def test_all_operations_are_there_on_every_screen(closed: Visitor) -> None:
    page = closed.page
    reply = page.goto("/docs#/jobs/createJob")
    assert reply is not None
    described = page.request.get("/openapi.json").json()["paths"]
    expect(page.locator(".opblock")).to_have_count(sum(map(len, described.values())))
    expect(page.locator("#operations-jobs-createJob")).to_contain_text("Idempotency-Key")
    for size in (DESK, PHONE):
        closed.fits("the reference", size)
    policies = [one.header_value("content-security-policy") for one in (reply, page.goto("/sign-in")) if one]
    assert policies[0] == policies[1]


def test_a_problem_has_a_page(closed: Visitor) -> None:
    closed.page.goto("/problems/privacy-budget-exceeded")
    expect(closed.page.get_by_role("heading", level=1)).to_contain_text("Privacy budget exceeded")
    closed.shows("25-problem")


def test_who_has_signed_in_keeps_the_way_back(owner: Visitor) -> None:
    page = owner.page
    page.get_by_role("link", name="API reference").click()
    page.wait_for_url("**/docs")
    page.get_by_role("link", name="DataLens").first.click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
