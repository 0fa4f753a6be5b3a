from __future__ import annotations

from soakd.load.histogram import Histogram
from soakd.load.outage import Change, OutageTracker, Second, Step

S = 1_000_000_000


def e2e(ms: int, times: int) -> Histogram:
    histogram = Histogram()
    histogram.record(ms * 1_000_000, times)
    return histogram


def good(at: int, completed: int = 20, ms: int = 100) -> Second:
    return Second(at * S, completed, 0, 0, back_ns=(at - 1) * S + 1, e2e=e2e(ms, completed))


def dead(at: int, failed: int = 8, completed: int = 0) -> Second:
    return Second(at * S, completed, failed, failed, first_down_ns=(at - 1) * S + S // 4, why="connect: refused",
                  e2e=e2e(100, completed))  # fmt: skip


def play(tracker: OutageTracker, seconds: list[Second]) -> list[Change]:
    return [change for second in seconds for change in tracker.step(second)]


def test_an_outage_has_start_first_success_recovery_and_its_losses() -> None:
    tracker = OutageTracker()
    seconds = [good(n) for n in range(1, 41)]
    seconds += [dead(41, 8, completed=6), *(dead(n) for n in range(42, 51))]
    seconds += [good(51, 5, 900), good(52, 10, 500), *(good(n) for n in range(53, 70))]
    changes = play(tracker, seconds)
    assert [change.step for change in changes] == [Step.STARTED, Step.ANSWERED, Step.RECOVERED]
    (outage,) = tracker.outages
    assert (outage.start_ns, outage.first_success_ns) == (40 * S + S // 4, 50 * S + 1)
    assert outage.lost == 80
    assert outage.recovered_ns == 57 * S
    assert "connect: refused" in changes[0].what


def test_an_outage_within_one_second_is_seen() -> None:
    tracker = OutageTracker()
    play(tracker, [good(n) for n in range(1, 31)])
    lost = Second(31 * S, 4, 8, 8, first_down_ns=30 * S + 5, back_ns=31 * S - 7, why="reset")
    assert [c.step for c in tracker.step(lost)] == [Step.STARTED, Step.ANSWERED]
    assert tracker.outages[0].first_success_ns == 31 * S - 7


def test_a_single_lost_request_is_no_outage() -> None:
    tracker = OutageTracker()
    seconds = [good(n) for n in range(1, 31)]
    seconds[15] = dead(16, 1, completed=19)
    assert play(tracker, seconds) == []


def test_one_failure_while_long_answers_run_is_no_outage_but_a_second_is() -> None:
    tracker = OutageTracker()
    assert play(tracker, [dead(1, 1), Second(2 * S, 0, 0, 0), Second(3 * S, 0, 0, 0)]) == []
    changes = play(tracker, [dead(4, 1)])
    assert [(c.step, c.at_ns) for c in changes] == [(Step.STARTED, S // 4)]


def test_a_server_that_answers_nothing_but_errors_is_out_after_five_seconds() -> None:
    tracker = OutageTracker()
    errors = [Second(n * S, 0, 8, 0, first_down_ns=n * S - 1, why="refused_for_load") for n in range(1, 8)]
    changes = play(tracker, errors)
    assert [change.step for change in changes] == [Step.STARTED]
    assert (changes[0].at_ns, tracker.outages[0].lost) == (S - 1, 56)


def test_errors_beside_answers_are_no_outage() -> None:
    tracker = OutageTracker()
    assert play(tracker, [Second(n * S, 10, 8, 0, first_down_ns=n * S - 1) for n in range(1, 60)]) == []


def test_it_is_not_recovered_while_slower_than_before() -> None:
    tracker = OutageTracker()
    play(tracker, [*(good(n) for n in range(1, 31)), dead(31), dead(32), *(good(n, ms=150) for n in range(33, 60))])
    assert tracker.outages[0].first_success_ns is not None
    assert tracker.outages[0].recovered_ns is None


def test_going_away_again_before_recovery_is_the_same_outage() -> None:
    tracker = OutageTracker()
    seconds = [*(good(n) for n in range(1, 31)), dead(31), dead(32), good(33), dead(34), dead(35)]
    changes = play(tracker, [*seconds, *(good(n) for n in range(36, 50))])
    assert tracker.count == 1
    assert [c.step for c in changes] == [Step.STARTED, Step.ANSWERED, Step.ANSWERED, Step.RECOVERED]
    assert tracker.outages[0].first_success_ns == 35 * S + 1


def test_a_server_never_up_has_an_outage_without_an_end() -> None:
    tracker = OutageTracker()
    play(tracker, [dead(n) for n in range(1, 100)])
    assert (tracker.outages[0].first_success_ns, tracker.outages[0].lost) == (None, 8 * 99)


def test_the_outages_kept_are_bounded_and_all_are_counted() -> None:
    tracker = OutageTracker(keep=3)
    for n in range(0, 500, 50):
        play(tracker, [*(good(n + i) for i in range(1, 31)), dead(n + 31), *(good(n + i) for i in range(32, 50))])
    assert (len(tracker.outages), tracker.count) == (3, 10)
