"""What several pages show of datasets and jobs."""

from typing import Any

from api.deps import Services
from api.pages.views import budget_breakdown, phases
from api.schemas.common import BudgetRead, DatasetRead
from api.schemas.jobs import JobRead
from datalens_service.store.datasets.datasets import StoredDataset, read_names
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs.jobs import Job
from datalens_service.store.ledger import account_summary


def dataset_facts(services: Services, *datasets: StoredDataset) -> dict[str, dict[str, Any]]:
    """Datasets with their budgets and gauges, by id."""
    with services.database.session() as session:
        accounts = account_summary.summarize_accounts(session, [each.id for each in datasets])
    return {
        each.id: {
            "dataset": DatasetRead.from_view(DatasetView.from_dataset(each), accounts[each.id]),
            "gauge": budget_breakdown.divide_budget(BudgetRead.from_account(accounts[each.id])),
        }
        for each in datasets
    }


def job_rows(services: Services, listed: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Jobs with the names of their datasets."""
    named = read_names(services.database, {job.dataset_id for job in listed})
    return [
        {"job": JobRead.from_job(job), "name": named[job.dataset_id], "stages": phases.job_phases(job)}
        for job in listed
    ]
