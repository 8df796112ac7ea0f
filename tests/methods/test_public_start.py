"""First weights from public images: what is copied, and that only the start changes."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Dataset, Schema, Split, Upload
from datalens_service.data.digits import digits
from datalens_service.methods import Rejection, Scattering
from datalens_service.methods.last_layer.dead_leaves import DeadLeaves
from datalens_service.methods.public_start import PublicImages, describe_source, spread_over, start_from_public
from datalens_service.methods.sums.moments import Moments
from datalens_service.models.classifiers.architectures import build_network
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import public_images, run

from .builders import advance, start, stripes
from .test_shapes import bars

SETTINGS = {"architecture": "mlp"}


def part(rows: slice, names: tuple[str, ...] | None = None) -> Dataset:
    upload = digits()
    images, labels = upload.train.images[rows], upload.train.labels[rows]
    names = names or upload.schema.class_names
    schema = upload.schema.model_copy(
        update={"num_units": len(labels), "class_names": names, "records_are_public": True}
    )
    return Dataset(schema, Split(images, labels if len(names) > 1 else labels * 0), None, b"k" * 32)


def weights(network: torch.nn.Module) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in network.parameters()]


@pytest.mark.parametrize(
    ("names", "unchanged"),
    [(None, []), (tuple("abcdefghij"), [-2, -1]), (("digit",), [-2, -1])],
    ids=["the same classes", "other classes", "without labels"],
)
def test_all_layers_start_from_public_images_but_the_last_of_other_classes(
    names: tuple[str, ...] | None, unchanged: list[int]
) -> None:
    public, private = part(slice(0, 300), names), digits().schema
    network = build_network(SETTINGS, private, 0)
    before = weights(network)
    start_from_public(network, SETTINGS, private, public_images(public), 0)
    same = [index for index, (old, new) in enumerate(zip(before, weights(network), strict=True)) if old.equal(new)]
    assert same == [len(before) + index for index in unchanged]
    again = build_network(SETTINGS, private, 0)
    start_from_public(again, SETTINGS, private, public_images(public), 0)
    assert all(torch.equal(*pair) for pair in zip(weights(network), weights(again), strict=True)), "a resumed job"


def test_images_without_labels_may_be_strips() -> None:
    schema = Schema(channels=1, height=6, width=8, class_names=("thing",), num_units=4, records_are_public=True)
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 1), dtype=np.uint8)
    public = Upload(schema, Split(images, np.zeros(4, np.int64)), None)
    private = schema.model_copy(update={"class_names": ("a", "b")})
    network = build_network(SETTINGS, private, 0)
    before = weights(network)
    start_from_public(network, SETTINGS, private, public_images(public), 0)
    changed = [not old.equal(new) for old, new in zip(before, weights(network), strict=True)]
    assert changed == [True, True, False, False]


def test_the_releases_cost_the_same_and_the_result_names_its_source() -> None:
    public = part(slice(0, 300))
    private = part(slice(300, 900))
    spec = TrainingSpec.model_validate({"method": {"name": "dp_sgd", **SETTINGS, "steps": 2}, "epsilon": 1.0})
    books = [MemoryAccount(spec.limit_units(private.schema)) for _ in range(2)]
    alone = run(spec, private, account=books[0])
    helped = run(spec, private, account=books[1], public=public)
    assert books[0].charges == books[1].charges
    assert alone.public_inputs.images is None
    assert helped.public_inputs.images == describe_source(public_images(public))
    assert helped.public_inputs.images.images == 300


def test_a_run_that_does_not_start_from_public_images_refuses_them() -> None:
    private = part(slice(300, 900))
    spec = TrainingSpec.model_validate({"method": {"name": "moments", "subspace_dimensions": 3}, "epsilon": 1.0})
    with pytest.raises(InvalidSpec, match="moments does not start from public images"):
        run(spec, private, account=MemoryAccount(0), public=part(slice(0, 300)))


UNITS = limit_units(20.0, 1e-4)
STARTS = [
    (Scattering(warm_start=Moments(subspace_dimensions=8), steps=2, samples=200, dimensions=20), stripes()),
    (Scattering(warm_start=DeadLeaves(), steps=2, samples=200, dimensions=100), stripes()),
    (Rejection(steps=2, samples=200, dimensions=20), bars()),
]


def trained(method: Scattering | Rejection, private: Dataset, public: Dataset | None, account: MemoryAccount):
    shown = None if public is None else public_images(public)
    return advance(start(method, private, UNITS, public=shown), account).result()


def test_public_images_are_spread_over_all_classes() -> None:
    images = PublicImages(digits().schema, np.zeros((10, 4, 4, 1), np.uint8), np.arange(10))
    assert spread_over(images, 4).labels.tolist() == [0, 3, 6, 9]
    assert len(spread_over(images, 10).images) == 10


@pytest.mark.parametrize(("method", "private"), STARTS, ids=["scattering", "drawings", "rejection"])
def test_scattering_features_are_fitted_to_public_images_too(method: Scattering | Rejection, private: Dataset) -> None:
    shape = private.train.images.shape
    noise = np.random.default_rng(0).integers(0, 255, (200, *shape[1:])).astype(np.uint8)
    schema = private.schema.model_copy(update={"num_units": 200, "records_are_public": True})
    public = Upload(schema, Split(noise, np.arange(200) % 2), None)
    account = MemoryAccount(UNITS)
    alone = trained(method, private, None, account)
    charges = list(account.charges)
    # Both see the same released sums: what differs is due to public images alone.
    helped = trained(method, private, public, account)
    assert account.charges == charges
    basis = next(name for name in alone.tensors if name.endswith("0.basis"))
    assert not np.array_equal(alone.tensors[basis], helped.tensors[basis])
    again = trained(method, private, public, account)
    for name, value in helped.tensors.items():
        np.testing.assert_array_equal(value, again.tensors[name])


@pytest.mark.parametrize("method", [STARTS[0][0], STARTS[1][0]], ids=["samples", "drawings"])
def test_labels_of_public_images_count_where_their_classes_are_the_private_ones(method: Scattering) -> None:
    private = stripes()
    public = stripes(seed=1)
    turned = Upload(public.schema, Split(public.train.images, 1 - public.train.labels), None)
    other = turned.schema.model_copy(update={"class_names": ("left", "right")})
    account, first = MemoryAccount(UNITS), []
    for source in (
        public,
        turned,
        Upload(public.schema.model_copy(update={"class_names": ("a", "b")}), public.train, None),
        Upload(other, turned.train, None),
    ):
        training_run = start(method, private, UNITS, public=public_images(source))
        advance(training_run, account, training_run.begin(account).plan.steps - 2)
        first.append(training_run.local("layer")._weights)
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[2], first[3])


def test_public_images_of_another_size_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="prepared to the same size"):
        start(*STARTS[0], UNITS, public=public_images(part(slice(0, 20)))).begin()


def test_iterates_that_are_kept_do_not_start_from_public_images() -> None:
    method = {"name": "dp_sgd", **SETTINGS, "steps": 2, "accounting": "per_instance"}
    with pytest.raises(ValidationError, match="first weights that follow from the seed alone"):
        TrainingSpec.model_validate({"method": method, "epsilon": 1.0, "public_data": "ds_1"})
    assert TrainingSpec.model_validate({"method": method, "epsilon": 1.0}).public_data is None
