"""What several pages show of datasets and jobs."""

from typing import Any

from api.deps import Services
from api.pages.views import budget_breakdown, phases
from api.schemas.common import BudgetRead, DatasetRead
from api.schemas.jobs import JobRead
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import account_summary


def dataset_facts(services: Services, dataset: StoredDataset) -> dict[str, Any]:
    """A dataset with its budget and gauge."""
    with services.database.session() as session:
        account = account_summary.summarize_account(session, dataset.id)
    return {
        "dataset": DatasetRead.from_view(DatasetView.from_dataset(dataset), account),
        "gauge": budget_breakdown.divide_budget(BudgetRead.from_account(account)),
    }


def job_rows(services: Services, listed: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Jobs with the names of their datasets."""
    names = {job.dataset_id for job in listed}
    named = {name: datasets.get(services.database, name).name for name in names}
    return [
        {"job": JobRead.from_job(job), "name": named[job.dataset_id], "stages": phases.job_phases(job)}
        for job in listed
    ]
