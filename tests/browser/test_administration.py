"""Webhooks, audit journal and usage in a browser, on a desk and on a phone."""

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser


def test_a_webhook_is_made_tested_given_a_new_secret_and_removed(owner: Visitor) -> None:
    page = owner.page
    page.goto("/keys")
    page.get_by_role("link", name="Webhooks").click()
    page.wait_for_url("**/webhooks")
    page.get_by_role("button", name="New webhook").click()
    page.get_by_label("Address").fill("https://hooks.example.org/in")
    page.get_by_role("button", name="Make the webhook").click()
    expect(page.locator("#secret-plain")).to_contain_text("whsec_")
    first = page.locator("#secret-plain").inner_text()
    page.get_by_role("link", name="I have kept it").click()
    page.wait_for_url("**/webhooks")
    page.get_by_role("link", name="https://hooks.example.org/in").click()
    page.wait_for_url("**/webhooks/wh_*")
    with page.expect_navigation():
        page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_role("rowheader", name="webhook.test")).to_be_visible()
    page.get_by_role("button", name="New secret…").click()
    page.get_by_role("button", name="Make a new secret").click()
    expect(page.locator("#secret-plain")).to_contain_text("whsec_")
    assert page.locator("#secret-plain").inner_text() != first
    owner.shows("31-webhook")
    page.get_by_role("button", name="Remove…").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    page.wait_for_url("**/webhooks")
    expect(page.get_by_role("heading", name="No webhooks yet")).to_be_visible()


def test_every_page_of_administration_fits(owner: Visitor) -> None:
    for name in ("keys", "webhooks", "journal", "usage", "retention", "tenants"):
        owner.page.goto(f"/{name}")
        owner.shows(f"30-{name}")


def test_times_are_set_and_taken_away(owner: Visitor) -> None:
    page = owner.page
    page.goto("/retention")
    page.get_by_role("button", name="Change…").click()
    page.get_by_label("Messages to webhooks").fill("400")
    owner.shows("32-retention-dialog")
    with page.expect_navigation():
        page.get_by_role("button", name="Set these times").click()
    row = page.get_by_role("row", name="Messages to webhooks")
    expect(row).to_contain_text("400 days")
    page.get_by_role("button", name="Change…").click()
    page.get_by_label("Messages to webhooks").fill("")
    with page.expect_navigation():
        page.get_by_role("button", name="Set these times").click()
    expect(row).not_to_contain_text("400 days")


def test_quotas_are_set_and_taken_away(owner: Visitor) -> None:
    page = owner.page
    page.goto("/tenants")
    row = page.get_by_role("row", name="default")
    for given, shown in (("1234", "1,234"), ("", "no limit")):
        page.get_by_role("button", name="Change the quotas of default…").click()
        page.get_by_label("Jobs and audits at once").fill(given)
        with page.expect_navigation():
            page.get_by_role("button", name="Set these quotas").click()
        expect(row.get_by_role("cell").nth(3)).to_have_text(shown)
