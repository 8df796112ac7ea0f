"""The report as one HTML page that needs nothing else: style, drawings and sample grid are inside.

A page is rendered from a view (`owner_view` or `releasable_view`) and the sample grid, never from the report itself:
what the view leaves out cannot appear.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from datalens_service.evaluation.charts import Bar, accuracy_bars, epsilon_delta_curve
from datalens_service.evaluation.report import Report, owner_view, releasable_view
from datalens_service.evaluation.summary import right_guesses, shown

# Columns of the table of releases; whatever else describes a mechanism is listed below its name.
_COLUMNS: Final = frozenset(
    {"mechanism", "name", "count", "noise_stddev", "sensitivity_squared", "units_zero_out", "units_replace_one"}
    | {"units_zero_out_total", "units_replace_one_total"}
)


def owner_html(report: Report, sample_grid: bytes | None = None) -> str:
    """The page for the owner of the private images, with every figure.

    Args:
        report: Of a finished job.
        sample_grid: PNG of synthetic images, one row per class.
    """
    return _page(owner_view(report), sample_grid)


def releasable_html(report: Report, sample_grid: bytes | None = None) -> str:
    """The page that may be passed on: no figure in it is private or for the owner.

    Args:
        report: Of a finished job.
        sample_grid: PNG of synthetic images, one row per class.
    """
    return _page(releasable_view(report), sample_grid)


def _page(view: dict[str, Any], sample_grid: bytes | None) -> str:
    environment = Environment(
        loader=PackageLoader("datalens_service.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(shown=shown, right_guesses=right_guesses)
    environment.filters.update(parameters=_parameters, grouped=_grouped, pretty=_pretty)
    headline = view["privacy"]["headline"]
    point = headline["points"][0]
    return environment.get_template("report.html.j2").render(
        view=view,
        privacy=view["privacy"],
        schema=view["dataset"]["public_schema"],
        grid=_data_uri(sample_grid) if sample_grid else None,
        # Both drawings escape their own texts.
        bars=Markup(accuracy_bars(_bars(view["measures"]))),  # noqa: S704
        curve=Markup(epsilon_delta_curve(headline["mu"], point["epsilon"], point["delta"])),  # noqa: S704
    )


def _bars(measures: list[dict[str, Any]]) -> list[Bar]:
    return [
        Bar(measure["title"], measure["value"], measure["spread"], measure["name"])
        for measure in measures
        if measure["unit"] == "percent"
    ]


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _parameters(mechanism: dict[str, Any]) -> str:
    """What the columns of the table do not show, as text."""
    return ", ".join(f"{key} {value}" for key, value in mechanism.items() if key not in _COLUMNS)


def _grouped(fraction: str) -> str:
    """A whole number with its thousands set apart; a fraction as it is."""
    return f"{int(fraction):,}" if fraction.isdigit() else fraction


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
