"""The API reference: all of it is there, and nothing is asked for elsewhere, which a visitor would complain of."""

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import DESK, PHONE, Visitor

pytestmark = pytest.mark.browser


def test_a_reader_finds_an_operation_and_tries_it_in_a_closed_network(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/sign-in")
    page.get_by_role("link", name="API reference").click()
    operation = page.locator("#operations-datasets-listDatasets")
    operation.locator(".opblock-summary-control").click()
    expect(operation).to_contain_text("datasets:read")
    operation.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Authorize").click()
    page.locator(".modal-ux input").fill(visitor.service.api_key)
    page.locator(".modal-ux").get_by_role("button", name="Apply credentials").click()
    page.locator(".modal-ux").get_by_role("button", name="Close", exact=True).click()
    with page.expect_response("**/v1/datasets*") as answer:
        operation.get_by_role("button", name="Execute").click()
    assert answer.value.status == 200
    expect(operation.locator(".curl-command")).to_contain_text("/v1/datasets")


def test_all_operations_are_there_on_every_screen(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/docs#/jobs/createJob")
    described = page.request.get("/openapi.json").json()["paths"]
    expect(page.locator(".opblock")).to_have_count(sum(map(len, described.values())))
    expect(page.locator("#operations-jobs-createJob")).to_contain_text("Idempotency-Key")
    for size in (DESK, PHONE):
        visitor.fits("the reference", size)


def test_a_problem_has_a_page(visitor: Visitor) -> None:
    visitor.page.goto("/problems/privacy-budget-exceeded")
    expect(visitor.page.get_by_role("heading", level=1)).to_contain_text("Privacy budget exceeded")
    visitor.shows("25-problem")


def test_who_has_signed_in_keeps_the_way_back(owner: Visitor) -> None:
    page = owner.page
    page.get_by_role("link", name="API reference").click()
    page.wait_for_url("**/docs")
    page.get_by_role("link", name="DataLens").first.click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
