"""Requests about releases: what each is and promises, and links of partners."""

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urljoin

from datalens_service.client import requests
from datalens_service.client.models import ReleaseInfo, ReleaseLinkInfo, ReleaseLinkList, SharedRelease
from datalens_service.client.transport import Transport


class ReleaseOperations:
    """Methods of the client about releases. Nothing that they return is private but whom a link is for."""

    _transport: Transport

    def releases(self) -> Iterator[ReleaseInfo]:
        """Yield all releases, newest first, fetched page by page."""
        return self._transport.iter_items("/v1/releases", ReleaseInfo)

    def get_release(self, release_id: str) -> ReleaseInfo:
        """Return what a release is and promises."""
        return self._transport.send("GET", f"/v1/releases/{release_id}", ReleaseInfo)

    def update_release(self, release_id: str, *, title: str | None = None, license: str | None = None) -> ReleaseInfo:
        """Give a release a public title and a licence by its SPDX id; what is None stays as it is."""
        body = {"json": requests.drop_unset({"title": title, "license": license})}
        return self._transport.send("PATCH", f"/v1/releases/{release_id}", ReleaseInfo, body)

    def share_release(self, release_id: str, *, partner: str, expires_at: datetime | None = None) -> SharedRelease:
        """Make a link by which one partner gets one release without a key. Its address is shown this once.

        Args:
            partner: Name of the partner; seen by keys of your own tenant alone.
            expires_at: End of the link, with a time zone; None lets it work until it is revoked.
        """
        body = {"partner": partner, "expires_at": expires_at and expires_at.isoformat()}
        options = {"json": requests.drop_unset(body)}
        made = self._transport.send("POST", f"/v1/releases/{release_id}/links", SharedRelease, options)
        return made.model_copy(update={"url": urljoin(self._transport.url, made.url)})

    def release_links(self, release_id: str) -> tuple[ReleaseLinkInfo, ...]:
        """Return all links of a release, oldest first, ended ones included."""
        return self._transport.send("GET", f"/v1/releases/{release_id}/links", ReleaseLinkList).items

    def revoke_release_link(self, link_id: str) -> ReleaseLinkInfo:
        """End a link at once; what was downloaded by it stays where it is."""
        return self._transport.send("DELETE", f"/v1/release-links/{link_id}", ReleaseLinkInfo)
