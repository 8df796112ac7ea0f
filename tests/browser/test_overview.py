"""Cards of data sets, also of those that share a budget, on a phone and at a desk."""

from pathlib import Path

import pytest

from tests.browser.visitor import Visitor

pytestmark = pytest.mark.browser

TEXT_OF_CARD = "cards => cards.map(card => card.querySelector('.card-text').clientWidth / card.clientWidth)"
SCROLLS = "() => document.documentElement.scrollWidth > window.innerWidth"


@pytest.mark.parametrize("width", [390, 1280])
def test_names_have_room_beside_a_shared_budget(owner: Visitor, upload: Path, width: int) -> None:
    for name in ("x.npz", "Radiology department, chest, 2019-2"):
        owner.upload(upload, name=name)
    owner.page.set_viewport_size({"width": width, "height": 844})
    owner.page.goto(owner.service.url + "/")
    assert owner.page.get_by_text("Shares the budget of").count()
    assert min(owner.page.locator(".card").evaluate_all(TEXT_OF_CARD)) > 0.4
    assert not owner.page.evaluate(SCROLLS)
