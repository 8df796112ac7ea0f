"""From a file to a release, one job on a phone and at a desk: upload, plan, slow job, verdict, what is handed out.

The test is the worker. The job is as slow as its rows say, so nothing depends on how busy the machine is.
"""

import io
import re
import zipfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from datalens_service.api.deps import Services
from datalens_service.base.clock import utc_now
from datalens_service.base.progress import Phase
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.service_tables import GENERATOR
from datalens_service.store.schema.tables import JobRow
from example_proof import EXAMPLE_PROOF
from in_process_service import InProcessService
from tests.api import api_builders
from tests.browser.visitor import SEEN_WHOLE, Visitor

pytestmark = pytest.mark.browser

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 860}
LEFT = re.compile(r"About (\d+) (min|h) left")
PLANNED = {
    Phase.TRAINING: 900.0, Phase.FITTING: 60.0, Phase.DRAWING: 60.0, Phase.PACKAGING: 30.0, Phase.EVALUATING: 700.0,
    Phase.REPORTING: 50.0,
}  # fmt: skip
SLOWER = 1.5
"""Times the planned seconds that each phase takes."""
FIGURES = {
    "accuracy": 18.1, "floor_averages": 30.5, "floor_moments": 29.9, "ceiling": 81.0, "fid_domain": 120.0,
    "kid_domain": 3.1, "precision_domain": 70.0, "recall_domain": 0.0, "score_domain": 1.2, "fid_random": 90.0,
    "kid_random": 2.0, "precision_random": 60.0, "recall_random": 10.0,
}  # fmt: skip


# As browsers of phones have it.
NOTIFIES_NOBODY = """window.Notification = class {
  static permission = "granted";
  static requestPermission = async () => "granted";
  constructor() { throw new TypeError("Illegal constructor"); }
};"""


class Worker:
    """Holds a job whose plan said half an hour, and which takes longer."""

    def __init__(self, services: Services, job_id: str) -> None:
        self._services = services
        lease = leases.claim(services.database, job_id, "test", 3600)
        assert lease is not None
        self.lease = lease
        with services.database.transaction() as session:
            row = session.get_one(JobRow, job_id)
            row.price = {**row.price, "phase_seconds": {phase.value: seconds for phase, seconds in PLANNED.items()}}

    def reach(self, phase: Phase, share: float) -> datetime:
        """Be so far, and have spent what that takes; when the job will end."""
        for steps in (0, round(1000 * share)):
            leases.progress(self._services.database, self.lease, phase, steps, 1000)
        earlier = [seconds for one, seconds in PLANNED.items() if list(Phase).index(one) < list(Phase).index(phase)]
        in_phase = timedelta(seconds=SLOWER * share * PLANNED[phase])
        in_all = in_phase + timedelta(seconds=SLOWER * sum(earlier))
        now = utc_now()
        with self._services.database.transaction() as session:
            row = session.get_one(JobRow, self.lease.job_id)
            row.started_at, row.phase_started_at = now - in_all, now - in_phase
        return now - in_all + timedelta(seconds=SLOWER * sum(PLANNED.values()))

    def hand_out(self, folder: Path) -> None:
        """Leave what a job leaves; its figures are worse than those of class averages."""
        picture = io.BytesIO()
        Image.new("L", (200, 200), 90).save(picture, "PNG")
        api_builders.leave_files(self._services, self.lease, folder, EXAMPLE_PROOF["card"])
        self._services.artifacts.put(
            self.lease, "samples.png", picture.getvalue(), releasable=True, media_type="image/png"
        )
        leases.mark_released(self._services.database, self.lease, GENERATOR)


@pytest.fixture
def service(service_without_worker: InProcessService) -> InProcessService:
    return service_without_worker


def test_somebody_walks_from_upload_to_release(
    visitor: Visitor, service: InProcessService, upload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = {view: api_builders.report_of(view, FIGURES) for view in ("owner", "releasable")}
    monkeypatch.setattr(api_builders, "report", reports.__getitem__)
    page = visitor.page
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.add_init_script(NOTIFIES_NOBODY)
    visitor.sign_in()
    dataset = visitor.upload(upload)
    expect(page.locator("#upload-found .histogram li")).to_have_count(10)
    _fits(visitor, "stored")

    page.get_by_role("link", name="Plan a job").click()
    visitor.priced()
    expect(page.locator("#verdict-part #verdict")).to_contain_text("A classifier trained on them")
    expect(page.locator('[data-offer="classifier"] td').first).to_contain_text("%")
    expect(page.locator('[data-offer="guessing"] td').first).to_have_text("10 %")
    _fits(visitor, "plan")
    worker = _a_job_is_submitted_and_waits(visitor, service)

    for phase, share in ((Phase.TRAINING, 0.1), (Phase.TRAINING, 0.5), (Phase.TRAINING, 0.996), (Phase.DRAWING, 0.5)):
        _says_how_long_it_goes_on(page, worker.reach(phase, share))
    _fits(visitor, "running")
    worker.hand_out(tmp_path)
    for share in (0.05, 0.8):
        _says_how_long_it_goes_on(page, worker.reach(Phase.EVALUATING, share))
    expect(page.locator("#live-released")).to_be_visible()

    page.get_by_role("button", name="Notify me when it ends").click()
    leases.finish(service.services.database, worker.lease, JobState.SUCCEEDED)
    expect(page.locator("#notify")).to_have_count(0)
    page.goto(f"/jobs/{worker.lease.job_id}")
    _fits(visitor, "succeeded")
    verdict = page.locator("#live-verdict")
    expect(verdict).to_contain_text("For you alone")
    place = verdict.bounding_box()
    assert place is not None
    assert place["y"] + place["height"] < PHONE["height"], "not on the first screen"
    assert page.evaluate("document.documentElement.scrollHeight") < 4000
    _is_published(page, tmp_path)
    page.get_by_label("Meaning of ε and δ").click()
    page.get_by_role("link", name="More on δ").click()
    expect(page.locator("[id='word-δ']")).to_be_in_viewport()
    visitor.shows("glossary")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.goto("/jobs")
    expect(page.get_by_role("row").last).to_contain_text("18.1 %")
    assert page.get_by_role("region", name="Jobs, a table").evaluate(SEEN_WHOLE), "a column lies beyond the screen"
    page.goto(f"/datasets/{dataset}")
    page.get_by_role("button", name="Attack a network without privacy").click()
    expect(page.get_by_role("region", name="Audits, a table")).to_contain_text("Waiting")
    page.goto("/releases")
    expect(page.get_by_role("article")).to_have_count(1)
    _fits(visitor, "releases")


def _a_job_is_submitted_and_waits(visitor: Visitor, service: InProcessService) -> Worker:
    job_id = visitor.submit()
    with service.services.database.transaction() as session:
        session.get_one(JobRow, job_id).created_at -= timedelta(minutes=5)
    visitor.page.reload()
    expect(visitor.page.locator("#live-title")).to_contain_text("No worker has been at work yet")
    _fits(visitor, "waiting")
    return Worker(service.services, job_id)


def _says_how_long_it_goes_on(page: Page, end: datetime) -> None:
    """Within a factor of two, and never that all of a phase is done."""
    page.reload()
    said = LEFT.fullmatch(page.locator(".eta").inner_text().strip())
    assert said is not None
    minutes, left = int(said[1]) * {"min": 1, "h": 60}[said[2]], (end - utc_now()).total_seconds() / 60
    assert left / 2 <= minutes <= 2 * left, (minutes, left)
    assert "100" not in page.locator(".stages .current .stage-note").inner_text()


def _is_published(page: Page, folder: Path) -> None:
    page.get_by_text("As a data set to publish", exact=True).click()
    page.get_by_label("Title").fill("Digits of nobody")
    page.get_by_label("Licence").select_option("CC-BY-4.0")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download as a data set to publish").click()
    coming.value.save_as(folder / "published.zip")
    with zipfile.ZipFile(folder / "published.zip") as archive:
        assert "Digits of nobody" in archive.read("README.md").decode()
        assert "CC-BY-4.0" in archive.read("LICENSE").decode()


def _fits(visitor: Visitor, name: str) -> None:
    for size in (DESK, PHONE):
        visitor.fits(f"walk-{name}", size)
