"""The version before and this one work together until the last process of the older one has stopped."""

from pathlib import Path

import pytest

from chaos.rolling import rolling_upgrade
from other_programs import do_without

pytestmark = [pytest.mark.redis, pytest.mark.postgres]


@pytest.mark.timeout(1200)
def test_both_versions_work_while_a_service_is_upgraded(tmp_path: Path) -> None:
    figures = rolling_upgrade(tmp_path)
    if "not_tried" in figures:
        do_without(figures["not_tried"])
    assert figures["passed"], figures
