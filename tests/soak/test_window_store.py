"""What is known of a run that was killed: its windows, and the counts of its last second."""

from __future__ import annotations

from dataclasses import replace

from soakd.journal.records import Blob
from soakd.load.messages import Counts, Histograms, SelfCheck, Window
from soakd.soak.window_store import BLOB, Tail, encode, tail_of, totals, with_tail

WINDOW = Window(
    index=0, start_ns=0, end_ns=10 * 10**9, real_s=10.0, stage="hold", measured=True,
    counts=Counts(offered=20, started=20, completed=18, failed=2, tokens_out=36), histograms=Histograms(),
    concurrency=4.0, concurrency_asked=4.0, self_check=SelfCheck(None, None, None, None, None, None, None),
    replicas=(), workers=1,
)  # fmt: skip
TAIL = Tail("run", 14 * 10**9, "hold", True, 31, 31, 27, 3, 0)


def test_what_ended_after_the_last_window_is_counted_and_said() -> None:
    done, _ = totals([Blob(BLOB, "run", 0, 10 * 10**9, 20, encode(WINDOW))], "killed")
    whole = with_tail(done, tail_of(TAIL.to_json(), "run"))
    assert whole is not None
    counts = whole.total.counts
    assert (counts.offered, counts.completed, counts.failed, counts.tokens_out) == (31, 27, 3, 36)
    assert "of 10 requests that ended after the last window only the number is known" in whole.incomplete
    assert [s.counts.completed for s in whole.stages] == [27]


def test_a_run_that_was_killed_before_its_first_window_still_has_its_counts() -> None:
    whole = with_tail(None, TAIL)
    assert whole is not None
    assert (whole.total.counts.completed, whole.total.counts.failed) == (27, 3)


def test_what_ended_while_warming_up_is_no_measurement() -> None:
    whole = with_tail(None, replace(TAIL, stage="warm-up", measured=False))
    assert whole is not None
    assert (whole.total.counts.completed, whole.stages[0].counts.completed) == (0, 27)


def test_the_tail_of_another_run_says_nothing() -> None:
    assert tail_of(TAIL.to_json(), "other") is None
    assert tail_of(b"{}", "run") is None
    assert with_tail(None, None) is None
