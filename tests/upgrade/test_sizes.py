"""What is written on the Lease stays within what the API server takes, counted in bytes."""

from kubectl_nodelife.controllers.upgrade import report
from kubectl_nodelife.controllers.upgrade.claims import ClaimHold
from kubectl_nodelife.controllers.upgrade.document import DOCUMENT_LIMIT, RunPhase, encode_document
from tests.upgrade.stand import Stand
from tests.upgrade.vector_cases import words

WHOLE_LIMIT = 256 * 1024
"""`TotalAnnotationSizeLimitB` of apimachinery's validation."""


def test_a_report_of_long_words_never_costs_the_lease() -> None:
    texts = {f"node-{n}": "\u8282" * report.MOST_WORDS for n in range(report.MOST_NODES)}
    holds = {name: ClaimHold("zone", text) for name, text in texts.items()}
    text = report.encode_report(
        report.LeaderReport(
            at="now", gates={"blind": "why"}, waits=texts, holds=holds, skipped=texts
        )
    )
    assert len(text.encode()) <= report.REPORT_LIMIT and "blind" in text
    short = report.LeaderReport(at="now", waits={"a": "S4"})
    assert '"a":"S4"' in report.encode_report(short)
    assert report.REPORT_LIMIT + DOCUMENT_LIMIT < WHOLE_LIMIT


def test_a_document_that_is_full_pauses_the_run_counted_in_bytes() -> None:
    s = Stand(nodes=["x"], maxUnavailable=5)
    s.add_nodes("x", "y", "z")
    s.add_pod("web-1", "x")
    room = DOCUMENT_LIMIT - len(encode_document(s.document).encode()) - 100
    s.write(given_back={"gone": "\u8282" * (room // 3)})
    s.settle()
    assert s.document.phase is RunPhase.PAUSED and "is full" in s.document.because
    assert len(encode_document(s.document).encode()) <= DOCUMENT_LIMIT + 128, "but for that"
    assert s.claimed() == ["x"] and s.waits_for("x").startswith("default/web-1 still there")
    s.run(16 * 60, every=60)
    assert "EvictPod" not in words(s.did) and s.state("x") == "", "nothing was done to it"
    assert not s.node("x").spec.unschedulable
