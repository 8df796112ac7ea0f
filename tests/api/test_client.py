"""Both clients against a real server: uploads over interruptions, events, waiting, what an error says."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from api_builders import npz, succeed, training
from event_loops import run_alone

from datalens_service.api.uploads import tus
from datalens_service.base.settings import Settings
from datalens_service.client import (
    AsyncClient,
    Client,
    ClientError,
    QuotasInfo,
    RetentionDays,
    ServiceUnreachable,
    requests,
)
from datalens_service.client.transport import Transport
from datalens_service.services import tenant_removal
from datalens_service.store.access import tenants
from datalens_service.store.datasets import upload_sessions
from example_proof import EXAMPLE_PROOF
from in_process_service import InProcessService

SPEC = training("")["spec"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An upload of several chunks."""
    monkeypatch.setattr(requests, "CHUNK_SIZE", 4096)
    path = tmp_path / "digits.npz"
    path.write_bytes(npz(note=np.zeros(3)))
    assert path.stat().st_size > 2 * 4096
    return path


def test_chunks_over_interruptions(service: InProcessService, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chunk is lost, and the response to another; each is sent until it is stored, once."""
    respond, losses = Transport.respond, iter(["before", "", "after", "", ""])

    def respond_with_losses(self: Transport, method: str, *request: Any) -> Any:
        loss = next(losses, "") if method == "PATCH" else ""
        if loss == "before":
            raise ServiceUnreachable("lost")
        result = respond(self, method, *request)
        if loss == "after":
            raise ServiceUnreachable("lost")
        return result

    monkeypatch.setattr(Transport, "respond", respond_with_losses)
    offsets: list[int] = []
    with Client(service.url, service.api_key) as client:
        upload_id = client.upload(file, on_bytes=lambda _id, offset, _size: offsets.append(offset))
    stored = upload_sessions.partial_files(service.services.settings.data_dir) / upload_id
    assert hashlib.sha256(stored.read_bytes()).digest() == hashlib.sha256(file.read_bytes()).digest()
    assert offsets == sorted(offsets)
    assert offsets[-1] == file.stat().st_size


def test_an_upload_goes_on_in_another_process(service: InProcessService, file: Path) -> None:
    content = file.read_bytes()
    with Client(service.url, service.api_key) as client:
        upload = client._begin_upload(len(content), "digits.npz")
        client._send_chunk(upload.id, 0, content[:5000])
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(file, epsilon=10, upload_id=upload.id, confirm_classes=True)
    assert (dataset.state, dataset.image_schema and dataset.image_schema.num_units) == ("ready", 200)


def test_a_refused_upload_names_its_files_in_the_error(service: InProcessService, file: Path) -> None:
    file.write_bytes(b"nothing of the kind" * 1000)
    with Client(service.url, service.api_key) as client, pytest.raises(ClientError, match="neither an NPZ") as caught:
        client.upload_dataset(file, epsilon=10, confirm_classes=True)
    assert caught.value.slug == "dataset-invalid"
    assert caught.value.problem["bad_files"] == []


def test_an_empty_file_is_refused_before_a_chunk_is_sent(service: InProcessService, file: Path) -> None:
    file.write_bytes(b"")
    with (
        Client(service.url, service.api_key) as client,
        pytest.raises(ClientError, match="The file is empty") as caught,
    ):
        client.upload_dataset(file, epsilon=10)
    assert caught.value.slug == "dataset-invalid"


def test_an_error_says_where_it_comes_from(service: InProcessService) -> None:
    with Client(service.url, service.api_key) as client, pytest.raises(ClientError) as caught:
        client.get_job("job_unknown")
    assert caught.value.request == "GET /v1/jobs/job_unknown"
    assert caught.value.request_id == caught.value.problem["instance"].removeprefix("urn:uuid:")
    assert caught.value.request_id in caught.value.__notes__[0]
    assert service.api_key not in str(caught.value.__notes__)


def test_a_job_knows_its_client(service: InProcessService, file: Path, tmp_path: Path) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(file, epsilon=10, confirm_classes=True)
        job = client.submit(dataset.id, {**SPEC, "synthetic_images": 20}, priority=1)
        assert job.priority == 1
        succeed(service.services, job.id, tmp_path, EXAMPLE_PROOF["card"])
        events = list(job.events())
        assert (events[0].type, events[-1].type) == ("job.created", "job.succeeded")
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        assert [event.id for event in job.events(after=1)] == [event.id for event in events[1:]]
        assert job.wait().state == job.refresh().state == "succeeded"
        assert job.download(tmp_path / "a.parquet", format="parquet").read_bytes()[:4] == b"PAR1"
        assert client.download_bundle(job.id, tmp_path / "b.zip", license="CC0-1.0").read_bytes()[:2] == b"PK"
        audiences = {item.name: item.audience for item in client.files(job.id)}
        assert (audiences["privacy.json"], audiences["account-proof.json"]) == ("anyone", "owner")
        assert client.download_file(job.id, "card.json", tmp_path / "d.json").read_bytes()[:1] == b"{"
        assert [item.id for item in client.jobs()] == [job.id]
        assert dataset.notices == client.validation(dataset.id).notices
        assert [notice.code for notice in dataset.notices] == ["ignored_arrays"]
        again = client.upload_dataset(file, confirm_classes=True)
        assert again.joined is not None
        assert again.joined.dataset_ids == (dataset.id,)
        assert client.dataset(again.id).joined == client.validation(again.id).joined == again.joined
        assert client.validation(dataset.id).counts is not None
        assert client.download_preview(dataset.id, tmp_path / "c.png").read_bytes()[1:4] == b"PNG"
        receipt = client.delete_dataset(dataset.id)
        assert receipt.entry is not None
        assert receipt.entry["kind"] == "delete"


def test_lists_are_fetched_page_by_page(service: InProcessService, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PAGE_SIZE", 1)

    async def list_ids() -> list[str]:
        async with AsyncClient(service.url, service.api_key) as client:
            return [dataset.id async for dataset in client.datasets()]

    with Client(service.url, service.api_key) as client:
        uploaded = [client.upload_dataset(file, epsilon=10, confirm_classes=True).id for _ in range(3)]
        assert [dataset.id for dataset in client.datasets()] == uploaded[::-1]
    assert run_alone(list_ids()) == uploaded[::-1]


def test_events_bridge_a_broken_connection(
    service: InProcessService, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iter_lines, known = Transport.iter_lines, []

    def breaking(self: Transport, path: str, headers: dict[str, str]) -> Iterator[str]:
        known.append(int(headers["Last-Event-ID"]))
        for number, line in enumerate(iter_lines(self, path, headers)):
            if number == 6 and len(known) < 3:
                raise ServiceUnreachable("broken off")
            yield line

    monkeypatch.setattr(Transport, "iter_lines", breaking)
    with Client(service.url, service.api_key) as client:
        job = client.submit(client.upload_dataset(file, epsilon=10, confirm_classes=True).id, SPEC)
        succeed(service.services, job.id, tmp_path)
        event_ids = [event.id for event in job.events()]
    assert event_ids == list(range(1, len(event_ids) + 1))
    assert known[0] == 0
    assert known == sorted(known)
    assert len(known) > 1


def test_the_same_for_asyncio(service: InProcessService, file: Path, tmp_path: Path) -> None:
    async def everything() -> list[str]:
        async with AsyncClient(service.url, service.api_key) as client:
            dataset = await client.upload_dataset(file, epsilon=10, confirm_classes=True)
            assert [notice.code for notice in dataset.notices] == ["ignored_arrays"]
            job = await client.submit(dataset.id, {**SPEC, "synthetic_images": 20})
            await asyncio.to_thread(succeed, service.services, job.id, tmp_path)
            events = [event.type async for event in job.events()]
            assert (await job.wait()).state == (await job.refresh()).state == "succeeded"
            path = await job.download(tmp_path / "a.npz", format="npz")
            assert path.read_bytes()[:2] == b"PK"
            assert len(await client.files(job.id)) == 10
            assert (await client.download_file(job.id, "card.json", tmp_path / "d.json")).exists()
            assert [item.id async for item in client.jobs()] == [job.id]
            assert [item.id async for item in client.datasets()] == [dataset.id]
            with pytest.raises(ClientError, match="no such"):
                await client.dataset("ds_unknown")
            assert (await client.delete_dataset(dataset.id)).entry
            return events

    assert run_alone(everything())[-1] == "job.succeeded"


def test_retention_is_tried_and_set(service: InProcessService, file: Path) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(file, epsilon=1.0, confirm_classes=True)
        # None of its days have passed: with 0 it is due now, with 1 tomorrow.
        [due] = client.due_removals(within_days=0, tried=RetentionDays(datasets=0))
        assert (due.kind, due.object_id, due.waits_for) == ("datasets", dataset.id, None)
        assert client.due_removals(within_days=0, tried=RetentionDays(datasets=1)) == ()
        assert client.due_removals() == ()
        assert client.set_retention(RetentionDays(datasets=9)).own.datasets == 9
        assert client.set_installation_retention(RetentionDays(datasets=7, journal=30)).effective.datasets == 7
        [due] = client.due_removals(within_days=7)
        assert due.object_id == dataset.id
        assert client.retention().everywhere == RetentionDays(datasets=7, journal=30)


def test_a_tenant_is_limited_and_removed(service: InProcessService) -> None:
    lab = tenants.create(service.services.database, "lab")
    with Client(service.url, service.api_key) as client:
        assert [one.name for one in client.tenants()][1:] == ["lab"]
        assert client.set_tenant_quotas(lab.id, QuotasInfo(jobs=2, bytes=0)).quotas == QuotasInfo(jobs=2, bytes=0)
        with pytest.raises(ClientError, match="not the name"):
            client.remove_tenant(lab.id, name="another")
        assert client.get_tenant(lab.id).removing_since is None
        assert client.remove_tenant(lab.id, name="lab").removing_since is not None
        services = service.services
        tenant_removal.proceed(services.database, services.artifacts, services.settings, lab.id)
        removed = client.get_tenant(lab.id)
    assert removed.receipt is not None
    assert removed.receipt["tenant_name"] == "lab"


def test_memory_stays_flat_while_a_long_piece_arrives(settings: Settings) -> None:
    """32 MiB in one piece; what is in memory at once does not depend on that."""
    service = InProcessService(settings.model_copy(update={"max_upload_bytes": 2**27}))
    block, blocks = bytes(2**18), 2**7
    headers = {"Authorization": f"Bearer {service.api_key}", "Tus-Resumable": "1.0.0"}
    try:
        announced = {**headers, "Upload-Length": str(len(block) * blocks)}
        begun = httpx2.post(f"{service.url}/v1/uploads", headers=announced, timeout=120)
        location = service.url + begun.headers["Location"]
        sent = {**headers, "Upload-Offset": "0", "Content-Type": tus.MEDIA_TYPE}
        tracemalloc.start()
        reply = httpx2.patch(location, headers=sent, content=iter([block] * blocks), timeout=300)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    finally:
        service.stop()
    assert (reply.status_code, reply.headers["Upload-Offset"]) == (204, str(len(block) * blocks))
    assert peak < 8 * 2**20
