"""`datalens datasets`: upload, list and show the data sets of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from datalens_service.cli import options, output
from datalens_service.cli.service import connect
from datalens_service.cli.specs import class_names
from datalens_service.client import DatasetInfo, ImageSchema

app = typer.Typer(help="Data sets of a service and their privacy budgets.", no_args_is_help=True)


@app.command()
def upload(
    path: Annotated[Path, typer.Argument(help="NPZ with labelled images, or a zip of class folders.", exists=True)],
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="Lifetime ε of these records; all jobs together stay below it.")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="δ; left out, min(1e-5, n^-1.1).")] = None,
    name: Annotated[str | None, typer.Option("--name", help="For people; left out, the name of the file.")] = None,
    classes: options.Classes = None,
    records_per_unit: options.RecordsPerUnit = None,
    classes_per_unit: options.ClassesPerUnit = None,
    unit: options.Unit = None,
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Upload a data set and give it its lifetime budget."""
    with connect(url, api_key) as client:
        dataset = client.upload_dataset(
            path,
            epsilon=epsilon,
            delta=delta,
            name=name or path.name,
            classes=class_names(classes),
            records_per_unit=records_per_unit,
            classes_per_unit=classes_per_unit,
            unit=unit,
        )
    output.show(dataset, output.facts(_facts(dataset)), as_json=as_json)


@app.command(name="list")
def list_(
    url: options.Url = options.DEFAULT_URL, api_key: options.ApiKey = "", as_json: options.AsJson = False
) -> None:
    """List data sets, newest first."""
    with connect(url, api_key) as client:
        found = list(client.datasets())
    rows = [
        (item.id, item.name, item.state, item.privacy.epsilon_limit, item.privacy.epsilon_remaining) for item in found
    ]
    items = [item.model_dump(mode="json", by_alias=True) for item in found]
    output.show({"items": items}, output.listing(("id", "name", "state", "ε limit", "ε left"), rows), as_json=as_json)


@app.command()
def show(
    dataset_id: Annotated[str, typer.Argument(help="Id of the data set, ds_….")],
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Show a data set and what is left of its budget."""
    with connect(url, api_key) as client:
        dataset = client.dataset(dataset_id)
    output.show(dataset, output.facts(_facts(dataset)), as_json=as_json)


@app.command()
def delete(
    dataset_id: Annotated[str, typer.Argument(help="Id of the data set, ds_….")],
    url: options.Url = options.DEFAULT_URL,
    api_key: options.ApiKey = "",
    as_json: options.AsJson = False,
) -> None:
    """Delete the records of a data set; what was spent on them stays on the books."""
    with connect(url, api_key) as client:
        client.delete_dataset(dataset_id)
    output.show({"id": dataset_id, "deleted": True}, f"{dataset_id} deleted", as_json=as_json)


def _facts(dataset: DatasetInfo) -> dict[str, object]:
    schema, privacy = dataset.image_schema, dataset.privacy
    return {
        "data set": dataset.id,
        "name": dataset.name,
        "state": dataset.state,
        "unit": _unit(schema),
        "images": f"{schema.width}×{schema.height}×{schema.channels}",
        "classes": ", ".join(schema.class_names),
        "test split": "yes" if dataset.has_test_split else "no",
        "ε": f"{privacy.epsilon_spent} spent, {privacy.epsilon_remaining} left of {privacy.epsilon_limit}",
        "δ": privacy.delta,
    }


def _unit(schema: ImageSchema) -> str:
    bound = f", each with at most {schema.records_per_unit} images" if schema.records_per_unit > 1 else ""
    return f"{schema.num_units:,} × {schema.unit}{bound}"
