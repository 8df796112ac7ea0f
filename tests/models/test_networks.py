import pytest
import torch

from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import ARCHITECTURES, Conv, Dense, fold, unfold

from .builders import random_batches, schema_of


@pytest.mark.parametrize("shape", [(1, 28, 28, 3), (2, 9, 6, 2), (1, 5, 4, 1)], ids=str)
def test_fold_is_the_transpose_of_unfold(shape: tuple[int, ...]):
    generator = torch.Generator().manual_seed(0)
    planes = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    patches = unfold(planes)
    other = torch.rand(patches.shape, generator=generator, dtype=torch.float64)
    assert float((patches * other).sum()) == pytest.approx(float((planes * fold(other, planes.shape)).sum()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)], ids=str)
def test_activations_cover_what_is_kept_for_the_backward_pass(architecture: str, shape: tuple[int, int, int]):
    schema = schema_of(*shape, classes=10)
    network = ARCHITECTURES[architecture](schema)
    ensemble = TeacherEnsemble(network, 3, schema, "cpu", seed=0)
    (batch,) = random_batches(schema, 3, steps=1, real=15, synthetic=15)
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        # Held until all are counted, so that no address is used twice.
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ensemble.train_step(*batch)
    weights = {value.untyped_storage().data_ptr() for value in ensemble._adam_state.parameters.values()}
    activations = sum(storage.nbytes() for place, storage in kept.items() if place not in weights)
    estimate = 4 * 3 * 30 * network.activations()
    # The rest of the estimate is for gradients during the backward pass.
    assert activations < estimate < 4 * activations


def test_the_gradient_of_a_block_that_another_has_overwritten_is_an_error():
    schema = schema_of(1, 8, 8)
    network = Dense(schema)
    parameters = {name: torch.zeros(2, *shape, requires_grad=True) for name, shape in network.shapes().items()}
    (batch,) = random_batches(schema, 2, steps=1)
    classes = torch.zeros(2, 3, 10)
    features = [network.first(parameters, batch[0], batch[2], classes) for _ in range(2)]
    torch.autograd.grad(features[1].sum(), parameters["input.weight"])
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(features[0].sum(), parameters["input.weight"])


def test_the_conv_teacher_is_the_originals():
    network = Conv(schema_of(1, 28, 28, classes=10))
    assert network.maps == (11, 42)
    assert network.sides == ((14, 14), (7, 7))
    assert network.shapes()["dense.weight"] == (256, 42 * 49)


def test_the_dense_teacher_has_the_width_asked_for():
    assert Dense(schema_of(1, 8, 8), hidden=5).shapes()["input.weight"] == (5, 64)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_initial_weights_have_the_declared_spread(architecture: str):
    schema = schema_of(1, 8, 8)
    network = ARCHITECTURES[architecture](schema)
    state = TeacherEnsemble(network, 50, schema, "cpu", seed=0).state()
    for name in network.shapes():
        value = state[f"parameters/{name}"]
        assert abs(value.mean()) < 0.2 * network.initial_stddev(name) + 1e-9
        assert value.std() == pytest.approx(network.initial_stddev(name), rel=0.15)
