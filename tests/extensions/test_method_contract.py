"""The contract that plug-ins are tried by raises no false alarm on methods of the product."""

import pytest

from datalens_service.method_contract import check_method
from datalens_service.methods import DataLens, DpSgd, Method, Mixture

VOTES = DataLens(num_teachers=6, images_per_step=4, steps=2, z_dim=4, top_k=5, threshold="none")
METHODS: tuple[Method, ...] = (
    Mixture(components=2, iterations=1, subspace_dimensions=4),
    DpSgd(architecture="linear", steps=3, sampling="poisson", batch=9, noise_multiplier=2.0),
    VOTES,
)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_methods_of_the_product_hold(method: Method) -> None:
    findings = list(check_method(method, steps=2))
    assert len(findings) >= 5
    assert [finding for finding in findings if finding.complaint] == []
