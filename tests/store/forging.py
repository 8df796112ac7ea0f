"""What a forger does to a proof: members changed in place, and chains that are well sealed to the last entry."""

from collections.abc import Callable
from functools import reduce
from operator import getitem
from typing import Any

from datalens_service.proof.hash_chain import GENESIS, Entry
from datalens_service.proof.job_charges import SealedCharge, genesis

Json = dict[str, Any]
Tamper = Callable[[Json], Any]


def change(path: str, new: Callable[[Any], Any]) -> Tamper:
    """Changes the member at a path such as `plan.0.count`."""

    def tamper(proof: Json) -> None:
        *places, name = (int(part) if part.lstrip("-").isdigit() else part for part in path.split("."))
        holder = reduce(getitem, places, proof)
        holder[name] = new(holder[name])

    return tamper


def put(path: str, value: Any) -> Tamper:
    return change(path, lambda _: value)


def add(path: str, more: float) -> Tamper:
    return change(path, lambda number: number + more)


def multiply(path: str, factor: float) -> Tamper:
    return change(path, lambda number: type(number)(number * factor))


def seal_journal(proof: Json) -> None:
    """Number and seal the entries of an account's proof anew, and have it end with them."""
    head = _seal(proof["entries"], "seq", Entry, GENESIS)
    proof["account"]["head"] = {"seq": len(proof["entries"]), "hash": head}


def seal_charges(proof: Json) -> None:
    """The same with the charges of a job's proof."""
    proof["head"] = _seal(proof["charges"], "number", SealedCharge, genesis(proof["job_id"]))


def _seal(chain: list[Json], number: str, model: type[Entry] | type[SealedCharge], previous: str) -> str:
    for place, link in enumerate(chain, start=1):
        link |= {number: place, "previous_hash": previous, "hash": ""}
        previous = link["hash"] = model.model_validate(link).computed_hash()
    return previous
