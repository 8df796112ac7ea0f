"""The page of a job says how good its result is, and shows its images class by class."""

import ast
import html
import io
import json
import re
from pathlib import Path

import api_builders
import numpy as np
import pytest
from api_builders import NUM_CLASSES, SIDE, browser, released, report, succeed, training
from PIL import Image
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.pages.views import image_viewer
from datalens_service.api.security.browser_sessions import FORM_TOKEN_HEADER
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.schema.service_tables import AuditEntryRow
from datalens_service.store.schema.tables import ArtifactRow

PACKED = 450
JSON = {"Content-Type": "application/json"}
PUBLIC, PRIVATE = "71.3 %", "64.2 %"


def measure(name: str, value: float, audience: str) -> dict[str, object]:
    return {
        "name": name, "value": value, "unit": "percent", "audience": audience, "spread": None, "ceiling": None,
        "title": f"Figure {name}", "meaning": "How many are right.",
    }  # fmt: skip


def report_with_figures(view: str) -> bytes:
    """The public figure in both reports, the private one in the owner's."""
    stated = json.loads(report(view))
    private = [measure("accuracy", 64.2, "owner")] if view == "owner" else []
    return json.dumps(stated | {"measures": [*private, measure("other", 71.3, "public")]}).encode()


@pytest.fixture
def job_id(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setattr(api_builders, "report", report_with_figures)
    made = client.post("/v1/jobs", json=training(dataset_id, synthetic_images=PACKED))
    succeed(services, made.json()["id"], tmp_path)
    return str(made.json()["id"])


def visit(client: TestClient, role: Role) -> TestClient:
    return browser(client, KeyRequest(role.value, role=role))


def noted(client: TestClient, services: Services) -> set[str]:
    with services.database.session() as session:
        return {row.action for row in session.query(AuditEntryRow)}


def test_the_owner_sees_all_figures_and_which_of_them_are_private(
    client: TestClient, services: Services, job_id: str
) -> None:
    visitor = visit(client, Role.OWNER)
    page, listed = visitor.get(f"/jobs/{job_id}").text, visitor.get("/jobs").text
    assert PUBLIC in page
    assert PRIVATE in page
    assert "For you alone" in page
    assert PRIVATE in listed
    assert "for you alone" in listed
    assert "seeQuality" in noted(client, services)
    assert 'id="live-verdict"' in page


def test_an_operator_sees_those_that_may_be_passed_on(client: TestClient, services: Services, job_id: str) -> None:
    visitor = visit(client, Role.OPERATOR)
    page, listed = visitor.get(f"/jobs/{job_id}").text, visitor.get("/jobs").text
    assert PUBLIC in page
    assert 'id="live-verdict"' not in page
    for text in (page, listed):
        assert PRIVATE not in text
        assert "or you alone" not in text
    assert "seeQuality" not in noted(client, services)


def test_the_owner_alone_is_offered_private_images_beside_the_samples(client: TestClient, job_id: str) -> None:
    for role, offered in ((Role.OWNER, True), (Role.OPERATOR, False)):
        assert ("/preview" in visit(client, role).get(f"/jobs/{job_id}").text) is offered


def test_the_page_says_how_to_submit_the_same_by_curl_and_python(client: TestClient, job_id: str) -> None:
    page = html.unescape(visit(client, Role.OWNER).get(f"/jobs/{job_id}").text)
    body = re.search(r"--data '(\{.*\})'</pre>", page)
    assert body is not None
    again = json.loads(body.group(1))
    assert again["spec"]["method"]["name"] == "moments"
    python = re.search(r'<pre tabindex="0" id="by-python">(.*?)</pre>', page, re.DOTALL)
    assert python is not None
    call = next(node for node in ast.walk(ast.parse(python.group(1))) if isinstance(node, ast.Dict))
    assert ast.literal_eval(call) == again["spec"]


def test_images_of_a_class_are_those_that_were_packed(
    client: TestClient,
    job_id: str,
) -> None:
    visitor = visit(client, Role.OWNER)
    first, second = (visitor.get(f"/jobs/{job_id}/images.png?label=1&page={page}").content for page in (0, 1))
    drawn = np.asarray(Image.open(io.BytesIO(first)))
    assert first != second
    assert drawn.std() > 0
    page = visitor.get(f"/jobs/{job_id}/images?label=1").text
    assert "Page 1 of 2" in page
    assert f"/jobs/{job_id}/images.png?label=1&amp;page=0" in page


def test_the_page_shows_how_a_generator_learned(client: TestClient, services: Services, job_id: str) -> None:
    visitor = visit(client, Role.OWNER)
    assert "How it learned" not in visitor.get(f"/jobs/{job_id}").text
    with services.database.transaction() as session:
        samples = session.get_one(ArtifactRow, (job_id, "samples.png"))
        columns = {column.key: getattr(samples, column.key) for column in ArtifactRow.__table__.columns}
        session.add(ArtifactRow(**columns | {"name": "preview-0001.png"}))
    page = visitor.get(f"/jobs/{job_id}").text
    assert f'src="/v1/jobs/{job_id}/artifacts/preview-0001.png"' in page
    assert visitor.get(f"/v1/jobs/{job_id}/artifacts/preview-0001.png").status_code == 200


def test_others_are_drawn_from_the_page_and_a_seed_repeats_them(client: TestClient, job_id: str) -> None:
    visitor = visit(client, Role.OWNER)
    address = f"/jobs/{job_id}/images.png?label=1"
    packed, *drawn = (visitor.get(address + seed).content for seed in ("", "&seed=1", "&seed=1", "&seed=2"))
    assert drawn[0] == drawn[1]
    assert len({packed, *drawn}) == 3
    page = visitor.get(f"/jobs/{job_id}/images?label=1&seed=1").text
    assert "with the seed 1: that costs no privacy" in page
    assert f"/jobs/{job_id}/images.png?label=1&amp;page=0&amp;seed=1" in page
    assert f"/jobs/{job_id}/images?label=1&amp;seed=2" in page
    assert visitor.get(f"/jobs/{job_id}/images?page=1&seed=1").status_code in (400, 422)


def test_a_class_has_as_many_pages_as_images_of_it_were_packed(
    client: TestClient, dataset_id: str, tmp_path: Path
) -> None:
    shares = [9, *[1] * (NUM_CLASSES - 1)]
    unequal = released(client, tmp_path, dataset_id, synthetic_images=PACKED, class_shares=shares)
    visitor = visit(client, Role.OWNER)
    large, small = (visitor.get(f"/jobs/{unequal}/images?label={label}").text for label in (0, 1))
    assert f"Page 1 of {-(-PACKED * 9 // sum(shares) // 100)}" in large
    assert "Page 1 of 1" in small
    assert "each class as often" not in large
    few = PACKED // sum(shares)
    for wanted in (2, 2 * few):
        reply = client.get(f"/v1/jobs/{unequal}/synthetic?format=npz&per_class={wanted}")
        with np.load(io.BytesIO(reply.content)) as arrays:
            assert arrays["train_labels"].tolist() == [*range(NUM_CLASSES)] * wanted
    refused = client.post("/v1/jobs", json=training(dataset_id, class_shares=[*shares, 1]))
    assert refused.status_code == 422
    assert f"a frequency for each of the {NUM_CLASSES} classes" in refused.json()["detail"]


def test_one_image_is_enlarged(client: TestClient, job_id: str) -> None:
    visitor = visit(client, Role.OWNER)
    address = f"/jobs/{job_id}/images.png?label=1&page=1"
    whole = np.asarray(Image.open(io.BytesIO(visitor.get(address).content)))
    large = np.asarray(Image.open(io.BytesIO(visitor.get(f"{address}&image=12").content)))
    step = (whole.shape[1] - 2) // 10
    # The twelfth image is the second of the second row; tiles have a gap of two pixels.
    tile = whole[step + 2 : 2 * step, step + 2 : 2 * step]
    side = image_viewer._LARGE_SIDE
    assert large.shape == (side, side)
    np.testing.assert_array_equal(large[:: side // 8, :: side // 8], tile[:: len(tile) // 8, :: len(tile) // 8])
    page = visitor.get(f"/jobs/{job_id}/images?label=1&page=1&image=12").text
    assert f'class="enlarged" src="/jobs/{job_id}/images.png?label=1&amp;page=1&amp;image=12"' in page


def test_plan_and_download_say_what_they_do_by_curl_and_python(
    client: TestClient, dataset_id: str, job_id: str
) -> None:
    visitor = visit(client, Role.OWNER)
    page = html.unescape(visitor.get(f"/jobs/{job_id}").text)
    assert (
        f'curl "$DATALENS_URL/v1/jobs/{job_id}/synthetic?format={{format}}&synthetic_images={{synthetic_images}}"'
        in page
    )
    token = re.search(r'name="form-token" content="([\w-]+)"', visitor.get("/").text)
    assert token is not None
    form = {"preset": "fast", "epsilon": "1", "seed": "0", "synthetic_images": "40", "method": ""}
    part = visitor.post(f"/datasets/{dataset_id}/plan", json=form, headers={FORM_TOKEN_HEADER: token[1]}).text
    body = re.search(r"/v1/plans.*--data '(\{.*\})'</pre>", html.unescape(part), re.DOTALL)
    assert body is not None
    again = visitor.post("/v1/plans", content=body[1], headers={FORM_TOKEN_HEADER: token[1]} | JSON)
    assert again.json()["cost"]["method"] == "pooled_moments"
    for text, name in ((page, "download"), (html.unescape(part), "plan")):
        python = re.search(rf'id="{name}-python"[^>]*>(.*?)</pre>', text, re.DOTALL)
        assert python is not None
        ast.parse(python[1])


def test_there_is_no_page_of_images_that_are_not_there(client: TestClient, job_id: str) -> None:
    visitor = visit(client, Role.OWNER)
    for query in ["label=99", "page=2", "label=-1", "label=x", "image=0", "label=1&page=1&image=14"]:
        assert visitor.get(f"/jobs/{job_id}/images?{query}").status_code in (400, 404, 422), query


def test_sets_too_large_for_a_page_are_downloaded_instead(
    client: TestClient,
    dataset_id: str,
    job_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = released(client, tmp_path, dataset_id, synthetic_images=40)
    visitor = visit(client, Role.OWNER)
    assert "Draw others" in visitor.get(f"/jobs/{few}/images").text
    monkeypatch.setattr(image_viewer, "MOST_BYTES", 40 * SIDE * SIDE)
    assert "Draw others" not in visitor.get(f"/jobs/{few}/images").text
    for path in ("images?seed=1", "images.png?seed=1"):
        assert visitor.get(f"/jobs/{few}/{path}").status_code == 409, "more are drawn than are packed"
    refused = visitor.get(f"/jobs/{job_id}/images")
    assert refused.status_code == 409
    assert "download them" in refused.text


def test_whoever_may_read_releases_alone_sees_no_name_of_a_data_set(client: TestClient, job_id: str) -> None:
    visitor = visit(client, Role.CONSUMER)
    assert visitor.get(f"/jobs/{job_id}/images").status_code == 403
