"""`datalens datasets`: upload, list and show the data sets of a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from datalens_service.cli import options, output, review
from datalens_service.cli.new_file import private_file
from datalens_service.cli.option_groups import Commands
from datalens_service.cli.options import parse_number
from datalens_service.cli.service import SERVICE, Service, find_dataset
from datalens_service.cli.specs import ReadingOptions, parse_class_names

if TYPE_CHECKING:
    from datalens_service.client import Budget, Client, DatasetInfo, Joined, LedgerEntry, ReviewInfo

app = Commands(help="Data sets of a service and their privacy budgets.", no_args_is_help=True)


@app.command()
def upload(
    path: Annotated[Path, typer.Argument(help="NPZ, Parquet, or a zip or tar of labelled images.", exists=True)],
    reading: ReadingOptions,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon", parser=parse_number, help="Lifetime ε of these records; all jobs together stay below it."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", parser=parse_number, help="δ; default: min(1e-5, n^-1.1). Known records need the δ they have."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name that all keys see which list data sets; default: the name of the file."),
    ] = None,
    confirm_classes: options.ConfirmClasses = False,
    public_test: options.PublicTest = False,
    public_records: options.PublicRecords = False,
    public_license: options.PublicLicense = None,
    shares_budget_with: options.SharesBudgetWith = None,
    leave_out_constant_images: options.LeaveOutConstantImages = False,
    upload_id: Annotated[
        str | None, typer.Option("--resume", metavar="UPLOAD", help="Continue an interrupted upload, upl_….")
    ] = None,
    service: Service = SERVICE,
) -> None:
    """Upload a dataset and give it its lifetime budget. Large files are sent in chunks and resume after interruptions.

    Its class names become public with the budget: they are shown, and you are asked. Until then it waits.
    What was read otherwise than you may expect is said on stderr. It depends on the images: do not pass it on.
    """
    from datalens_service.cli.progress import UploadBar

    with service.connect() as client:
        with UploadBar() as bar:
            dataset = client.upload_dataset(
                path,
                epsilon=epsilon,
                delta=delta,
                name=name,
                confirm_classes=confirm_classes,
                public_test=public_test,
                public_records=public_records,
                public_license=public_license,
                shares_budget_with=_payer(client, shares_budget_with),
                leave_out_constant_images=leave_out_constant_images,
                **(vars(reading) | {"class_names": parse_class_names(reading.class_names)}),
                upload_id=upload_id,
                on_bytes=bar.observe,
            )
        review.say_notices(dataset.notices)
        if dataset.review is not None:
            _ask(dataset.id, dataset.review)
            known, dataset = dataset.notices, client.confirm_dataset(dataset.id)
            review.say_notices(notice for notice in dataset.notices if notice not in known)
    service.show(dataset, output.format_facts(_describe(dataset)))


@app.command()
def confirm(
    dataset_id: options.DatasetId,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            parser=parse_number,
            help="ε of the budget. Named, this and the next two replace all that was named with the upload.",
        ),
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", parser=parse_number, help="δ of the budget.")] = None,
    shares_budget_with: options.SharesBudgetWith = None,
    confirm_classes: options.ConfirmClasses = False,
    service: Service = SERVICE,
) -> None:
    """Look at the class names of an upload that waits, publish them, and open its budget."""
    with service.connect() as client:
        named = find_dataset(client, dataset_id)
        report = client.validation(named)
        if report.review is not None and not confirm_classes:
            review.say_notices(report.notices)
            _ask(named, report.review)
        payer = _payer(client, shares_budget_with)
        confirmed = client.confirm_dataset(named, epsilon=epsilon, delta=delta, shares_budget_with=payer)
    review.say_notices(notice for notice in confirmed.notices if notice not in report.notices)
    service.show(confirmed, output.format_facts(_describe(confirmed)))


@app.command(name="list")
def list_(service: Service = SERVICE) -> None:
    """List data sets, newest first."""
    with service.connect() as client:
        listed = list(client.datasets())
    rows = [(item.id, item.name, item.state, *_format_budget(item.privacy)) for item in listed]
    output.show_items(listed, ("id", "name", "state", "ε limit", "ε left"), rows, as_json=service.as_json)


@app.command()
def show(dataset_id: options.DatasetId, service: Service = SERVICE) -> None:
    """Show a data set and what is left of its budget."""
    with service.connect() as client:
        dataset = client.dataset(find_dataset(client, dataset_id))
    service.show(dataset, output.format_facts(_describe(dataset)))


@app.command()
def ledger(dataset_id: options.DatasetId, service: Service = SERVICE) -> None:
    """List the ledger of a data set's account, newest first: what was reserved and spent, for which job, and by whom.

    Who submitted a job is shown to keys that may read the audit journal.
    """
    with service.connect() as client:
        entries = list(client.ledger(find_dataset(client, dataset_id)))[::-1]
    rows = [
        (one.seq, f"{one.at:%Y-%m-%d %H:%M}", one.kind, one.job_id or "", _name_submitter(one), one.label, one.units)
        for one in entries
    ]
    columns = ("entry", "at", "kind", "job", "submitted by", "label", "units of 1e-15 μ²")
    output.show_items(entries, columns, rows, as_json=service.as_json)


def _name_submitter(entry: LedgerEntry) -> str:
    return output.name_actor(entry.submitted_by) if entry.job_id else ""


@app.command()
def label(
    dataset_id: options.DatasetId,
    name: options.LabelName = None,
    tags: options.LabelTags = None,
    notes: options.LabelNotes = None,
    service: Service = SERVICE,
) -> None:
    """Rename, tag or annotate a data set, to find it again."""
    with service.connect() as client:
        dataset = client.update_dataset(find_dataset(client, dataset_id), name=name, tags=tags, notes=notes)
    service.show(dataset, output.format_facts(_describe(dataset)))


@app.command()
def delete(dataset_id: options.DatasetId, yes: options.Yes = False, service: Service = SERVICE) -> None:
    """Delete the records of a data set; what was spent on them stays on the books. Asks first."""
    review.confirm(f"Delete the records of {dataset_id}? This cannot be undone.", yes=yes)
    with service.connect() as client:
        receipt = client.delete_dataset(find_dataset(client, dataset_id))
    lines = {
        "data set": f"{receipt.dataset_id} deleted",
        "at": receipt.deleted_at.isoformat(timespec="seconds"),
        "removed": "\n".join(receipt.removed),
        "kept": "\n".join(receipt.kept),
        "journal": f"entry {receipt.entry['seq']}, {receipt.entry['hash']}" if receipt.entry else "no budget yet",
    }
    service.show(receipt, output.format_facts(lines))


@app.command()
def validation(dataset_id: options.DatasetId, service: Service = SERVICE) -> None:
    """Show what came of an upload: counts, or the files that cannot be used. Private: for the owner."""
    with service.connect() as client:
        report = client.validation(find_dataset(client, dataset_id))
    lines: dict[str, object] = {"data set": report.dataset_id, "state": report.state}
    if report.joined is not None:
        lines["known records"] = _describe_joined(report.joined)
    if report.counts is not None:
        lines |= {name: count for name, count in report.counts.items() if not name.endswith("classes")}
        lines["classes"] = "\n".join(f"{name} {count}" for name, count in report.counts["classes"].items())
    if report.review is not None:
        lines |= {**review.describe(report.review), "files ignored": f"{report.review.ignored_files:,}"}
        lines |= {"waits until": report.review.expires_at, "for": report.review.message}
    if report.notices:
        lines["notices"] = "\n".join(review.format_notice(notice) for notice in report.notices)
    if report.detail is not None:
        lines["why"] = report.detail
        lines["bad files"] = f"{report.bad_count} of {report.checked}"
        lines["which"] = "\n".join(f"{file.name}: {file.reason}" for file in report.bad_files)
    service.show(report, output.format_facts(lines))


@app.command()
def preview(
    dataset_id: options.DatasetId,
    out: Annotated[Path, typer.Option("--out", help="PNG to write.", dir_okay=False)] = Path("preview-private.png"),
    force: options.Force = False,
    service: Service = SERVICE,
) -> None:
    """Write some of the private records as a PNG. For the owner's eyes; not to be passed on."""
    with private_file(out, force=force) as path, service.connect() as client:
        client.download_preview(find_dataset(client, dataset_id), path)
    service.show({"path": str(out)}, str(out))


def _payer(client: Client, named: str | None) -> str | None:
    return None if named is None else find_dataset(client, named)


def _ask(dataset_id: str, found: ReviewInfo) -> None:
    waits = (
        f"Nothing was published or charged. Until {found.expires_at:%Y-%m-%d %H:%M} UTC, `datalens datasets confirm "
        f"{dataset_id}` publishes the class names and opens the budget, and `datalens datasets delete {dataset_id}` "
        "deletes the upload."
    )
    review.require(found, waits, {"dataset_id": dataset_id, "review": found.model_dump(mode="json")})


def _format_budget(privacy: Budget | None) -> tuple[object, object]:
    return ("", "") if privacy is None else (privacy.epsilon_limit, privacy.epsilon_remaining)


def _describe(dataset: DatasetInfo) -> dict[str, object]:
    lines: dict[str, object] = {"data set": dataset.id, "name": dataset.name, "state": dataset.state}
    schema, privacy = dataset.image_schema, dataset.privacy
    if schema is None or privacy is None:
        return lines
    return lines | {
        **review.describe(schema),
        "classes": ", ".join(schema.class_names),
        "test split": "yes" if dataset.has_test_split else "no",
        "ε": f"{privacy.epsilon_spent} spent, {privacy.epsilon_remaining} left of {privacy.epsilon_limit}",
        "δ": privacy.delta,
        **({"guarantee": dataset.guarantee} if dataset.guarantee else {}),
        **({} if dataset.joined is None else {"known records": _describe_joined(dataset.joined)}),
    }


def _describe_joined(joined: Joined) -> str:
    """Say to the owner that records were known, and which account pays."""
    count = "some" if joined.known_records is None else f"{joined.known_records:,}"
    return (
        f"{count} of these records were uploaded before, so the budget of {', '.join(joined.dataset_ids)} pays: "
        f"ε {joined.epsilon_spent} of {joined.epsilon} was spent then. For you alone."
    )
