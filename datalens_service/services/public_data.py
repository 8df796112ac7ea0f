"""Whether a job may start from a data set: only from one that was declared public when it was uploaded."""

from datalens_service.data.export.licence import OF_PUBLIC_IMAGES, describe_public_images
from datalens_service.errors import InvalidSpec, StateConflict
from datalens_service.methods.public_start import check_same_size
from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.datasets import DatasetState, StoredDataset


def check(database: Database, tenant_id: str, dataset_id: str, private: StoredDataset) -> StoredDataset:
    """The public data set that a job names, unless the job cannot start from it.

    Raises:
        NotFound: The tenant has no such data set.
        InvalidSpec: It was not declared public, has the same account, or its images have another size.
    """
    with database.session() as session:
        tenants.check_owned(session.connection(), tenant_id, {"dataset_id": dataset_id})
        public = datasets.read(session, dataset_id)
    if not public.schema.records_are_public:
        raise InvalidSpec(
            "⟦spec.public_data⟧ names a data set that is private: only one that was uploaded with ⟦public_records⟧ may "
            "be used."
        )
    if public.state is not DatasetState.READY:
        raise StateConflict("The public data set was deleted; upload it again to start from it.")
    if public.account_id == private.account_id:
        raise InvalidSpec(
            "⟦spec.public_data⟧ has the same budget as the data set that is trained on: they share images, or were "
            "tied to one account. The guarantee would not hold for what is in both: name public images of their own."
        )
    check_same_size(private.schema, public.schema)
    return public


def sentence(public: StoredDataset) -> str:
    """What a plan and the page of a job say of it."""
    images = describe_public_images(f"the data set “{public.name}” ({public.id})", public.schema.public_license)
    return f"Public images are used beside the private ones: {images}. {OF_PUBLIC_IMAGES}"
