"""Reports on attacks: figures in the owner's copy alone; the releasable copy says where they lie."""

import copy
import json

import jsonschema
import pytest

from datalens_service.base.errors import ReportIncomplete
from datalens_service.report.attacks import AttackFinding, RocPoint
from datalens_service.report.build import Report, owner_view, releasable_view
from datalens_service.report.document import check, compute_seal, json_schema
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import report

CANARY = 918_273_645
FINDING = AttackFinding(
    audit="aud_canary",
    target="moments at ε = 1, in rehearsal",
    attack="loss_threshold",
    source="Yeom et al. 2018",
    members=CANARY,
    non_members=100,
    auc=0.51234,
    interval=(0.49, 0.54),
    auc_allowed=0.575,
    curve=(
        RocPoint(false_positive_rate=0, true_positive_rate=0, allowed=0),
        RocPoint(false_positive_rate=1, true_positive_rate=1, allowed=1),
    ),
)


@pytest.fixture
def attacked() -> Report:
    return report().model_copy(update={"attacked": True, "attacks": (FINDING,)})


def test_the_owner_reads_what_attacks_found(attacked: Report) -> None:
    view = owner_view(attacked)
    check(json.dumps(view).encode())
    jsonschema.Draft202012Validator(json_schema()).validate(view)
    page = owner_html(attacked)
    for text in ("What attacks found", f"{CANARY:,}", "0.512", "0.490 to 0.540", "0.575", 'class="curve bound"'):
        assert text in page
    assert "No empirical attack" not in page


def test_the_releasable_copy_says_that_figures_lie_with_the_owner(attacked: Report) -> None:
    view = releasable_view(attacked)
    check(json.dumps(view).encode())
    assert view["attacks"]["findings"] == []
    page = releasable_html(attacked)
    assert "The owner asked for attacks" in page
    assert "lies with the owner" in page
    for text in (json.dumps(view), page):
        assert not [secret for secret in (str(CANARY), f"{CANARY:,}", "aud_canary", "0.512", "0.49") if secret in text]


def test_a_releasable_report_with_a_finding_is_refused(attacked: Report) -> None:
    view = copy.deepcopy(releasable_view(attacked))
    view["attacks"]["findings"] = [FINDING.model_dump(mode="json")]
    view["seal"]["sha256"] = compute_seal(view)
    with pytest.raises(ReportIncomplete, match="what attacks found"):
        check(json.dumps(view).encode())


def test_without_audits_nothing_is_said_of_figures() -> None:
    for view in (owner_view(report()), releasable_view(report())):
        assert "attacks" not in view
        assert view["privacy"]["evidence"].startswith("No empirical attack had been asked for")
    assert "What attacks found" not in owner_html(report())
