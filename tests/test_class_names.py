"""A class has a name of its own, by which a reader finds it."""

import ast
from collections import defaultdict

from repository import ROOT

CLIENT = ROOT / "datalens_service" / "client"
"""It imports nothing of the service, and names the answers of the API as the API does."""


def test_no_two_classes_of_the_product_have_the_same_name() -> None:
    homes = defaultdict(list)
    for room in ("api", "datalens_service", "workers"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if CLIENT not in path.parents:
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef):
                        homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(homes) > 300
    assert {name: places for name, places in homes.items() if len(places) > 1 and not name.startswith("_")} == {}
