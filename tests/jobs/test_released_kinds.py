"""A job whose method releases something else than a generator: its files, its report, its proof.

Samples of a job that still trains: the last ones, and a few of the earlier ones that stay.
What a job leaves is signed with the key that the service publishes, whichever process did it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from starlette.testclient import TestClient

import datalens_service.jobs.execute
from datalens_service.api.main import create_app
from datalens_service.base.signatures import signer
from datalens_service.data.dataset import Schema
from datalens_service.jobs import release_files
from datalens_service.jobs.holdout import holdout_accuracy
from datalens_service.jobs.release_files import SamplePreviews
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.proof.proof_verification import verify
from datalens_service.report import document
from datalens_service.store.installation import signing_key
from datalens_service.store.jobs import released_models
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.training import run as train
from deployments.deployment import MOMENTS, QUICK, Deployment, lamps
from tests.models.toy_models import Brightness, MeanImage

STATED = {"card.json", "privacy.json", "report-releasable.json", "report-releasable.html", "README.md"} | {
    "evidence-releasable.html",
    "registry.yaml",
}
PRIVATE = {"report.json", "report.html", "evidence.html", "account-proof.json"}


@pytest.fixture
def releasing(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Does a job whose releases are those of a generator, and whose model is another."""

    def job_of(make: Callable[[Schema], ReleasedModel], **changes: Any) -> Job:
        def run(*arguments: Any, **named: Any) -> Any:
            result = train(*arguments, **named)
            return replace(result, model=make(result.model.schema))

        monkeypatch.setattr(datalens_service.jobs.execute, "run", run)
        dataset = lamps()
        public = dataset.schema.model_copy(update=changes)
        job = local.submit(MOMENTS, local.upload(replace(dataset, schema=public)))
        ended = local.execute(job)
        assert (ended.state, ended.error) == (JobState.SUCCEEDED, None)
        return ended

    return job_of


def names(local: Deployment, job: Job, *, releasable: bool) -> set[str]:
    return {file.name for file in local.artifacts.list_artifacts(job.id) if file.releasable is releasable}


def test_a_new_kind_of_model_is_one_class_and_its_files_are_downloadable(
    local: Deployment, releasing: Callable[..., Job]
) -> None:
    job = releasing(MeanImage)

    assert names(local, job, releasable=True) == STATED | {"mean.bin", "mean.txt"}
    assert names(local, job, releasable=False) == PRIVATE
    assert local.read(job, "mean.txt") == b"127"
    assert verify(local.read(job, "privacy.json")).holds
    kind = "mean-image"
    noted = released_models.get(local.database, released_models.build_id(job.id, kind), kind)
    assert (noted.job_id, noted.kind) == (job.id, kind)
    assert local.read_json(job, "report.json")["measures"] == []


def test_a_classifier_job_has_a_confusion_table_for_the_owner_and_no_samples(
    local: Deployment, releasing: Callable[..., Job]
) -> None:
    job = releasing(Brightness)

    assert names(local, job, releasable=True) == STATED | {"classifier.safetensors", "classifier.onnx"}
    owner, releasable = local.read_json(job, "report.json"), local.read_json(job, "report-releasable.json")
    table = owner["confusion"]
    assert table["class_names"] == ["bright", "dark"]
    assert sum(map(sum, table["counts"])) == 60
    (measure,) = owner["measures"]
    right = table["counts"][0][0] + table["counts"][1][1]
    assert (measure["name"], measure["audience"]) == ("classifier_accuracy", "owner")
    assert measure["value"] == pytest.approx(100 * right / 60)
    assert "confusion" not in releasable
    assert releasable["measures"] == []
    assert owner["synthetic"] is releasable["synthetic"] is local.read_json(job, "card.json")["synthetic"] is False
    for name in ("report.json", "report-releasable.json"):
        document.check(local.read(job, name))
    # Nor does it speak of images that it would have drawn.
    page = local.read(job, "report-releasable.html").decode()
    said = json.dumps([releasable["summary"], *(releasable["privacy"][part] for part in ("scope", "data_accesses"))])
    assert "This is a classifier of images." in said
    assert "generator" not in said.casefold()
    assert "Which class is taken for which" not in page
    assert "Which class is taken for which" in local.read(job, "report.html").decode()


def test_the_card_of_a_classifier_is_a_model_index_without_private_figures(
    local: Deployment, releasing: Callable[..., Job]
) -> None:
    private, public = releasing(Brightness), releasing(Brightness, test_is_public=True)
    texts = {job.id: local.read(job, "README.md").decode().split("---\n")[1] for job in (private, public)}
    index = {job_id: yaml.safe_load(text)["model-index"][0]["results"][0] for job_id, text in texts.items()}
    assert [one["type"] for one in index[private.id]["metrics"]] == ["epsilon", "delta"]
    assert [one["type"] for one in index[public.id]["metrics"]] == ["accuracy", "epsilon", "delta"]
    assert index[public.id]["task"]["type"] == "image-classification"
    # The table counts test images of each class: also of a public test split, it stays in the owner's copy.
    assert "confusion" not in local.read_json(public, "report-releasable.json")


def test_a_classifier_is_counted_on_a_set_that_was_set_aside(
    local: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = local.upload(lamps(9, with_test=False))
    job = local.submit({**MOMENTS, "evaluation": {"holdout": aside.id, "holdout_noise_stddev": 100}})
    settings = datalens_service.jobs.execute.TrainingSpec.model_validate(job.spec).evaluation
    dataset = lamps(9, with_test=False)
    measure = holdout_accuracy(local.database, local.claim(job), Brightness(dataset.schema), dataset, settings, "cpu")
    assert (measure.name, measure.status, measure.audience) == ("classifier_accuracy_holdout", "covered", "public")
    assert "synthetic" not in measure.protocol
    with local.database.session() as session:
        assert summarize_account(session, aside.id).charged_units > 0


def test_few_grids_stay_however_often_they_are_drawn(local: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = iter(bytes([number]) for number in range(1, 100))
    monkeypatch.setattr(release_files, "sample_picture", lambda *_: next(pictures))
    lease = local.claim(local.submit(MOMENTS))
    artifacts, generator = local.artifacts, MagicMock(spec=Generator)
    for shows in (5, 6):
        # The second stands for a job that goes on after a crash.
        shown = SamplePreviews(artifacts, lease, seconds=0)
        for _ in range(shows):
            shown.show(generator)
    kept = {file.name: file.path.read_bytes()[0] for file in artifacts.list_artifacts(lease.job_id)}
    assert kept == {
        "preview-0001.png": 1, "preview-0002.png": 2, "preview-0004.png": 4, "preview-0008.png": 9, "samples.png": 11
    }  # fmt: skip
    assert all(file.releasable for file in artifacts.list_artifacts(lease.job_id))


SIGNED = ("privacy.json", "account-proof.json", "report.json", "report-releasable.json")


@pytest.fixture
def anybody(local: Deployment) -> Iterator[TestClient]:
    """Without a key."""
    with TestClient(create_app(local.settings), base_url="http://service") as http:
        yield http


def test_every_proof_and_report_of_a_job_is_signed_with_the_published_key(
    local: Deployment, anybody: TestClient
) -> None:
    job = local.execute(local.submit(QUICK))
    published = anybody.get("/v1/signing-key").json()
    assert published["algorithm"] == "Ed25519"
    for name in SIGNED:
        key = signer(local.read(job, name))
        assert key is not None, name
        assert (key.hex, key.key_id, key.pem) == (published["public_key"], published["key_id"], published["pem"])
    for name in ("report.html", "report-releasable.html"):
        page = local.read(job, name).decode()
        assert published["key_id"] in page
        assert "/v1/signing-key" in page


def test_the_key_is_on_a_page_that_anybody_may_open(anybody: TestClient) -> None:
    key, reply = anybody.get("/v1/signing-key").json(), anybody.get("/signing-key")
    assert reply.status_code == 200
    for name in ("key_id", "public_key"):
        assert key[name] in reply.text
    assert all(line in reply.text for line in key["pem"].splitlines())
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    assert set(key) == {"algorithm", "key_id", "public_key", "pem"}, "nothing of the secret"
    assert "PRIVATE" not in key["pem"]


def test_another_process_has_the_same_key(local: Deployment) -> None:
    program = (
        "from datalens_service.store.database import Database\n"
        "from datalens_service.store.installation import signing_key\n"
        f"print(signing_key(Database({local.database.url!r})).public.hex)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert printed.stdout.strip() == signing_key(local.database).public.hex
