"""What a channel has still to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from soakd.alerting.outbox import Outbox
from soakd.model import Alert, AlertState, Severity, labels
from soakd.ports import Notice, Told

S = 1_000_000_000


def alert(name: str = "Hot", gpu: str = "0") -> Alert:
    return Alert(name, AlertState.FIRING, Severity.WARNING, labels(gpu=gpu), "hot", 1, 1, 1)


def over(one: Alert) -> Alert:
    return replace(one, state=AlertState.RESOLVED, ended_ns=2, over="cool")


def taken(notices: Sequence[Notice]) -> Told:
    return Told({n.alert.key: "m" for n in notices})


def test_a_change_is_due_until_it_was_told() -> None:
    box = Outbox(None)
    box.put(alert())
    first = box.due(0)
    assert [n.alert for n in first] == [alert()]
    box.told(first, Told({}, problem="down"), 0)
    assert box.due(5 * S) == first
    box.told(first, taken(first), 5 * S)
    assert box.due(10**6 * S) == ()
    assert box.next_ns() is None


def test_a_firing_alert_is_told_again_in_time() -> None:
    box = Outbox(60 * S)
    box.put(alert())
    box.told(box.due(0), taken(box.due(0)), 0)
    assert box.due(59 * S) == ()
    assert box.next_ns() == 60 * S
    (again,) = box.due(60 * S)
    assert again.memory == "m"


def test_what_changes_while_it_is_told_stays_due() -> None:
    box = Outbox(None)
    box.put(alert())
    under_way = box.due(0)
    box.put(over(alert()))
    box.told(under_way, taken(under_way), S)
    (left,) = box.due(S)
    assert left.alert.state is AlertState.RESOLVED
    box.told((left,), taken((left,)), 2 * S)
    assert len(box) == 0


def test_an_alert_that_came_and_went_is_told_once_without_memory() -> None:
    box = Outbox(None)
    box.put(alert())
    box.put(over(alert()))
    (only,) = box.due(0)
    assert (only.alert.state, only.memory) == (AlertState.RESOLVED, "")


def test_flapping_while_the_channel_is_down_takes_one_place() -> None:
    box = Outbox(None, most=10)
    for _ in range(1000):
        box.put(alert())
        box.put(over(alert()))
    assert (len(box), box.dropped) == (1, 0)


def test_what_finds_no_room_is_counted() -> None:
    box = Outbox(None, most=10)
    assert [box.put(alert(gpu=str(i))) for i in range(12)] == [True] * 10 + [False] * 2
    assert (len(box), box.dropped) == (10, 2)
    assert box.put(over(alert(gpu="3"))), "a known alert's end always finds room"


def test_restart() -> None:
    box = Outbox(60 * S)
    box.put(alert("Told"))
    box.told(box.due(0), taken(box.due(0)), 0)
    box.put(alert("Waits"))
    box.put(alert("Gone"))
    other = Outbox(60 * S)
    other.load(box.dump())
    other.settle([alert("Told"), alert("Waits"), alert("New")], 9 * S)
    due = {n.alert.name: (n.alert.state, n.memory) for n in other.due(0)}
    firing = AlertState.FIRING
    assert due == {
        "Told": (firing, "m"), "Waits": (firing, ""), "Gone": (AlertState.RESOLVED, ""), "New": (firing, "")
    }  # fmt: skip


def test_new_figures_are_no_reason_to_tell() -> None:
    box = Outbox(None)
    box.put(alert())
    box.told(box.due(0), taken(box.due(0)), 0)
    box.refresh(replace(alert(), summary="hotter"))
    assert box.due(S) == ()
