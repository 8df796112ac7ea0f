"""The mechanisms; this union is the registry that contract tests and documentation checks walk through."""

from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.moments import OuterProductSum, VectorSum
from datalens_service.mechanisms.topagg import TopAgg

AnyMechanism = TopAgg | VectorSum | OuterProductSum

__all__ = ["Account", "AnyMechanism", "Mechanism", "OuterProductSum", "TopAgg", "VectorSum"]
