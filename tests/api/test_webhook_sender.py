"""The sender of a running service."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from test_webhooks import Receiver, deliveries

from api.main import create_app
from datalens_service.gateways import webhook_sender
from datalens_service.settings import Settings
from datalens_service.store.access import keys


def test_a_running_service_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_sender, "_TIMEOUT_SECONDS", 120.0)
    receiver = Receiver()
    settings = Settings(data_dir=tmp_path / "data", webhooks_to_private_addresses=True)
    with TestClient(create_app(settings), base_url="http://service") as client:
        services = client.app.state.services
        client.headers["Authorization"] = f"Bearer {keys.create(services.database, 'test')[1]}"
        hook = client.post("/v1/webhooks", json={"url": receiver.url}).json()
        client.post(f"/v1/webhooks/{hook['webhook']['id']}:test")
        while deliveries(client, hook)[0]["state"] != "delivered":
            services.stopping.wait(0.05)
    receiver.server.shutdown()
    receiver.server.server_close()
    assert len(receiver.got) == 1
