"""Cards of seven data sets with long names, some of which share a budget, on a phone and at a desk."""

from pathlib import Path

import numpy as np
import pytest

from datalens_service import Client
from in_process_service import InProcessService
from tests.browser.visitor import DESK, Visitor

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
TEXT_OF_CARD = "cards => cards.map(card => card.querySelector('.card-text').clientWidth / card.clientWidth)"
LINES_OF_NAME = "names => names.map(name => name.clientHeight / parseFloat(getComputedStyle(name).lineHeight))"


@pytest.fixture
def service(service_without_worker: InProcessService) -> InProcessService:
    return service_without_worker


def test_names_have_room_beside_a_shared_budget(owner: Visitor, service: InProcessService, tmp_path: Path) -> None:
    path, payer = tmp_path / "records.npz", None
    with Client(service.url, service.api_key) as client:
        for number in range(7):
            images = np.random.default_rng(number).integers(0, 256, (20, 8, 8), dtype=np.uint8)
            np.savez(path, images=images, labels=np.arange(20) % 2)
            budget = {"shares_budget_with": payer} if number % 3 == 1 else {"epsilon": 1.0}
            name = f"Radiology department, chest 2019-{number:02d}"
            payer = client.upload_dataset(path, name=name, confirm_classes=True, **budget).id
    for size in (DESK, PHONE):
        owner.fits("seven-data-sets", size)
        owner.page.goto("/")
        assert owner.page.get_by_text("Shares the budget of").count() == 2
        assert min(owner.page.locator(".card").evaluate_all(TEXT_OF_CARD)) > 0.4
        assert max(owner.page.locator(".card h2").evaluate_all(LINES_OF_NAME)) < 3.5
        owner.fits("seven-data-sets", size)
    assert owner.page.evaluate("document.documentElement.scrollHeight") < 2400
