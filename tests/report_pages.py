"""The two pages of a report, as a job packs them."""

from __future__ import annotations

from datalens_service.report.build import Report, owner_view, releasable_view
from datalens_service.report.html import page
from datalens_service.report.pictures import Pictures


def owner_html(report: Report, pictures: Pictures | None = None) -> str:
    return page(owner_view(report), pictures)


def releasable_html(report: Report, pictures: Pictures | None = None) -> str:
    return page(releasable_view(report), pictures)
