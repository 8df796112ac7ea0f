"""Without a mouse, without light, without a connection, without a session."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.browser.visitor import Visitor
from tests.data.builders import grey, write_zip

pytestmark = pytest.mark.browser


def test_everything_up_to_the_price_works_by_keyboard(visitor: Visitor, upload: Path) -> None:
    page = visitor.page
    page.goto("/")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type(visitor.service.api_key)
    page.keyboard.press("Enter")
    page.wait_for_url(visitor.service.url + "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/#content")
    page.keyboard.press("Tab")
    expect(page.locator("#content").locator("a, button, input, select, summary").first).to_be_focused()
    dataset = visitor.upload(upload)
    page.goto(f"/datasets/{dataset}/new-job")
    page.get_by_role("radio", name="Best-looking").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="Fast", exact=True)).to_be_checked()
    page.keyboard.press("Tab")
    expect(page.get_by_label("ε this job may spend", exact=True)).to_be_focused()
    visitor.priced()
    visitor.accept()
    expect(page.get_by_role("button", name="Submit job")).to_be_enabled()


def test_the_key_is_nowhere_in_the_browser(owner: Visitor) -> None:
    page = owner.page
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    assert "datalens-session" not in page.evaluate("document.cookie")
    kept = page.context.cookies()
    assert [cookie["name"] for cookie in kept] == ["datalens-session"]
    assert kept[0]["httpOnly"]
    assert kept[0]["sameSite"] == "Strict"
    assert owner.service.api_key not in str(kept)
    assert owner.service.api_key not in page.content()


def test_a_lost_connection_is_said_and_the_next_try_works(owner: Visitor, upload: Path) -> None:
    page = owner.page
    page.goto(f"/datasets/{owner.upload(upload)}/new-job")
    owner.priced()
    offer = page.locator('[data-offer="classifier"] td').first
    expect(offer).to_contain_text("%")
    page.context.set_offline(True)
    page.get_by_label("ε this job may spend", exact=True).fill("0.5")
    expect(page.locator("#price-part")).to_contain_text("The service cannot be reached")
    expect(page.locator("#verdict")).to_have_count(0)
    expect(offer).to_be_empty()
    page.context.set_offline(False)
    page.get_by_label("ε this job may spend", exact=True).fill("0.6")
    expect(page.locator(".leaves")).to_be_visible()
    expect(offer).to_contain_text("%")


def test_a_wanted_accuracy_says_the_epsilon_that_it_needs_and_the_classifier_stands_first_for_labels(
    owner: Visitor, upload: Path
) -> None:
    page = owner.page
    page.goto(f"/datasets/{owner.upload(upload)}/new-job")
    owner.priced()
    wanted, epsilon = page.locator("#accuracy"), page.get_by_label("ε this job may spend", exact=True)
    rows = page.locator(".offers tbody tr")
    places = [rows.nth(place).get_attribute("data-offer") for place in range(rows.count())]
    wanted.fill("50")
    expect(page.locator("#target")).to_contain_text("of 100 guesses", ignore_case=True)
    page.locator("#target button").click()
    expect(page.locator("#target")).to_be_visible()
    expect(page.locator("#target button")).to_have_count(0)
    assert float(epsilon.input_value()) != 1.0
    wanted.fill("99.9")
    expect(page.locator("#target")).to_contain_text("99.9 % is out of reach")
    expect(page.locator(".leaves")).to_be_visible()
    wanted.fill("")
    epsilon.fill("1")
    page.get_by_role("radio", name="Best for training").check()
    expect(page.locator("#verdict")).to_contain_text(re.compile("^If labels are all you need"))
    expect(rows.first).to_have_attribute("data-offer", "classifier")
    page.get_by_role("radio", name="Best-looking").check()
    expect(rows.first).to_have_attribute("data-offer", "auto")
    owner.priced()
    assert [rows.nth(place).get_attribute("data-offer") for place in range(rows.count())] == places


# Lets the test know when the page has read an answer.
LISTENER = """() => {
  const ask = window.fetch;
  window.answered = new Promise((resolve) => {
    window.fetch = async (...request) => {
      const answer = await ask(...request);
      const text = await answer.text();
      resolve();
      return new Response(text, { status: answer.status });
    };
  });
}"""


def test_the_price_of_a_form_that_has_changed_since_cannot_be_bought(owner: Visitor, upload: Path) -> None:
    page = owner.page
    page.goto(f"/datasets/{owner.upload(upload)}/new-job")
    owner.priced()
    late: list[Route] = []
    page.route("**/plan", lambda route: late.append(route))
    page.evaluate(LISTENER)
    epsilon, submit = page.get_by_label("ε this job may spend", exact=True), page.locator("#submit-job")
    with page.expect_request("**/plan"):
        epsilon.fill("2")
    # The page does not get to asking for the next price before that of the first comes.
    page.evaluate("() => { window.wait = setTimeout; window.setTimeout = () => 0; }")
    epsilon.fill("3")
    late[0].continue_()
    page.evaluate("answered")
    expect(page.locator("#price-part")).to_have_attribute("aria-busy", "true")
    expect(submit).to_be_disabled()

    page.evaluate("() => { window.setTimeout = wait; }")
    page.unroute("**/plan")
    epsilon.fill("4")
    owner.priced()
    assert json.loads(str(submit.get_attribute("data-body")))["spec"]["epsilon"] == 4


def test_an_upload_goes_on_after_a_lost_connection(owner: Visitor, upload: Path) -> None:
    page = owner.page
    lost: list[str] = []

    def lose_the_first(route: Route) -> None:
        if route.request.method == "PATCH" and not lost:
            lost.append(route.request.url)
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/v1/uploads/*", lose_the_first)
    owner.upload(upload)
    assert len(lost) == 1


def test_files_that_cannot_be_used_are_named(owner: Visitor, tmp_path: Path) -> None:
    page = owner.page
    cats = {f"cat/{number}.png": grey(number) for number in range(4)}
    dogs = {"dog/one.png": b"not a picture", "dog/two.png": b"not one either"}
    archive = write_zip(tmp_path / "pets.zip", cats | dogs)
    page.goto("/datasets/new")
    page.locator("#file").set_input_files(archive)
    page.get_by_role("button", name="Upload and check").click()
    expect(page.locator("#upload-problem")).to_be_focused()
    expect(page.locator("#upload-files")).to_contain_text("dog/one.png")
    expect(page.locator("#upload-files")).to_contain_text("dog/two.png")
    page.goto("/")
    expect(page.get_by_text("pets")).to_have_count(0)


def test_an_ended_session_leads_to_the_form_and_back(owner: Visitor, upload: Path) -> None:
    page = owner.page
    place = f"/datasets/{owner.upload(upload)}/new-job"
    page.goto(place)
    owner.priced()
    page.context.clear_cookies()
    page.get_by_label("ε this job may spend", exact=True).fill("0.5")
    page.wait_for_url("**/sign-in?next=*")
    page.get_by_label("API key").fill(owner.service.api_key)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{place}")


def test_what_does_not_exist_is_a_page_with_a_way_back(owner: Visitor) -> None:
    page = owner.page
    page.goto("/jobs/job_none")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    owner.shows("16-not-found")
    page.get_by_role("link", name="To your data sets").click()
    page.wait_for_url(owner.service.url + "/")


def test_keys_are_made_shown_once_and_revoked(owner: Visitor) -> None:
    page = owner.page
    page.get_by_role("link", name="Keys").click()
    page.wait_for_url("**/keys")
    expect(page.get_by_role("row", name="first (yours)")).to_be_visible()
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Whose key is it?").fill("Maria")
    page.get_by_label("Ends after days").fill("30")
    page.get_by_role("button", name="Make the key").click()
    expect(page.locator("#secret-plain")).to_contain_text("dlk_")
    owner.shows("17-keys")
    page.get_by_role("link", name="I have kept it").click()
    expect(page.get_by_role("row", name="Maria")).to_contain_text("operator")
    expect(page.get_by_role("row", name="Maria")).to_contain_text("until")
    expect(page.locator("#secret-made")).to_be_hidden()
    page.get_by_role("button", name="Revoke Maria…").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    page.get_by_role("link", name="1 revoked or expired").click()
    expect(page.get_by_role("row", name="Maria")).to_contain_text("Revoked")


def test_what_is_private_comes_when_it_is_opened(owner: Visitor, upload: Path) -> None:
    page = owner.page
    page.goto(f"/datasets/{owner.upload(upload)}")
    expect(page.locator("#private-facts")).to_be_empty()
    page.locator("#private").get_by_text("For you alone:").click()
    expect(page.locator("#private-facts")).to_contain_text("1,438")
    bars = page.locator(".histogram li")
    expect(bars).to_have_count(10)
    widths = [float(bar.get_attribute("width") or 0) for bar in bars.locator("rect.have").all()]
    counts = [int(count) for count in bars.locator("b").all_text_contents()]
    assert widths == pytest.approx([100 * count / max(counts) for count in counts])
    owner.shows("18-private")
