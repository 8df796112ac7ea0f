"""The alert rules that come with the service: each fault fires its alert, as Prometheus evaluates it, and no other."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from other_programs import find_program

FOLDER = Path(__file__).parents[1] / "deploy" / "prometheus"
METRICS = Path(__file__).parents[1] / "docs" / "observe.md"

SOUND = {
    "up{job='datalens',instance='a'}": "1x400",
    "datalens_degraded{instance='a',part='disk'}": "0x400",
    "datalens_degraded{instance='a',part='artifact_store'}": "0x400",
    "datalens_degraded{instance='a',part='broker'}": "0x400",
    "datalens_degraded{instance='a',part='workers'}": "0x400",
    "datalens_disk_free_bytes{instance='a',disk='data'}": "50e9x400",
    "datalens_jobs_without_worker{instance='a'}": "0x400",
    "datalens_queue_oldest_seconds{instance='a',queue='cpu'}": "10x400",
    "datalens_jobs{instance='a',state='running'}": "1x400",
    "datalens_steps_per_second{instance='a'}": "2x400",
    "datalens_jobs_failed{instance='a',reason='worker-lost'}": "0x400",
    "datalens_accounts_frozen{instance='a'}": "0x400",
    "datalens_ledger_entries_total{instance='a'}": "100+1x400",
    "datalens_sign_ins_refused_total{instance='a'}": "0+1x400",
    "datalens_epsilon_limit{instance='a',dataset='ds_1'}": "10x400",
    "datalens_epsilon_remaining{instance='a',dataset='ds_1'}": "5x400",
}
"""What is scraped each minute of a service in order."""

FAULTS: dict[str, tuple[dict[str, str], str | None]] = {
    "none": ({}, None),
    "frozen database": ({"up": "1x200 0x200"}, "DatalensDown"),
    "broker away": ({"part='broker'": "0x200 1x200"}, "DatalensDegraded"),
    "full disk": ({"part='disk'": "0x200 1x200", "datalens_disk": "50e9x200 1000x200"}, "DatalensDegraded"),
    "disk that fills": ({"datalens_disk": "50e9x200 4e9x200"}, "DatalensDiskNearlyFull"),
    "dead workers": ({"without_worker": "0x200 1x200", "steps": "2x200 0x200"}, "DatalensWorkerLost"),
    "no worker for a queue": (
        {"datalens_jobs{": "0x400", "steps": "0x400", "oldest": "0+60x400"},
        "DatalensQueueStandsStill",
    ),
    "job that kills its processes": ({"reason": "0x370 1x30"}, "DatalensJobsFail"),
    "job that hangs": ({"steps": "2x100 0x300"}, "DatalensNoProgress"),
    "account that does not add up": ({"frozen": "0x200 1x200"}, "DatalensAccountFrozen"),
    "restored backup": ({"entries": "100+1x370 50+1x30"}, "DatalensJournalShrank"),
    "guessed keys": ({"refused": "0x370 0+50x30"}, "DatalensSignInsRefused"),
    "end of a budget": ({"remaining": "5x200 0.5x200"}, "DatalensBudgetNearlySpent"),
}
"""What a fault changes of it, by a part of the series' name, and the alert that it fires."""


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fires_its_alert_and_no_other(fault: str, tmp_path: Path) -> None:
    promtool = find_program("promtool")
    changes, alert = FAULTS[fault]
    series = SOUND | {name: values for part, values in changes.items() for name in SOUND if part in name}
    fired = [] if alert is None else [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    case: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": "390m", "exp_samples": fired}],
    }
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yaml")], "tests": [case]}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_fault() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == {alert for _, alert in FAULTS.values() if alert is not None}


@pytest.mark.parametrize("file", ["alerts.yaml", "dashboard.json"])
def test_rules_and_dashboard_read_metrics_that_there_are(file: str) -> None:
    documented = METRICS.read_text().replace("`_", "`datalens_epsilon_")
    named = set(re.findall(r"datalens_\w+", (FOLDER / file).read_text()))
    assert named
    assert {name for name in named if f"`{name}`" not in documented} == set()


def test_the_dashboard_can_be_read() -> None:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
