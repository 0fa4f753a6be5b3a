from __future__ import annotations

from pathlib import Path

import pytest

from soakd.collectors.gpu_memory import PROCESS_USED
from soakd.model import Event, Sample, Severity, State, labels
from soakd.soak.conclude import count_both
from soakd.soak.sharing import ON_A_CARD, STRANGER, CardSharing, strangers
from tests.support.evidence_of_runs import a_run
from tests.support.proc_tree import add_process

GIB = 2**30


def on_card(pid: int, card: str = "GPU-1", used: int | None = GIB) -> Sample:
    tags = labels(gpu=card, bdf="0000:01:00.0", pid=pid, type="compute")
    if used is None:
        return Sample.unknown(PROCESS_USED, State.ABSENT, 5, tags, "NVML can't tell the memory of this program")
    return Sample.ok(PROCESS_USED, used, 5, tags)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """vllm (100) with a worker (101) that has a child (102), and a notebook (200)."""
    add_process(tmp_path, 1, "init", 0)
    add_process(tmp_path, 100, "vllm", 1)
    add_process(tmp_path, 101, "worker", 100)
    add_process(tmp_path, 102, "worker child", 101)
    add_process(tmp_path, 200, "jupyter", 1)
    return tmp_path


def seen(sharing: CardSharing, *samples: Sample, times: int = 3) -> list[Event]:
    return [event for _ in range(times) for event in sharing.step(samples)]


def test_the_name_of_the_metric_is_the_collector_s() -> None:
    assert PROCESS_USED.name == ON_A_CARD


def test_a_process_outside_the_target_s_tree_is_named_once_with_its_memory(proc: Path) -> None:
    (event,) = seen(CardSharing(proc, 100), on_card(101), on_card(102), on_card(200))
    assert (event.kind, event.severity) == (STRANGER, Severity.WARNING)
    assert event.what == "jupyter (pid 200) uses the target's card 0000:01:00.0 with 1 GiB"
    assert strangers([event]) == ("jupyter (pid 200) on 0000:01:00.0",)


def test_a_process_whose_memory_nvml_can_not_tell_is_a_stranger_all_the_same(proc: Path) -> None:
    (event,) = seen(CardSharing(proc, 100), on_card(200, used=None), on_card(101))
    assert event.what.endswith("card 0000:01:00.0")


def test_a_card_that_the_target_does_not_use_is_not_its_business(proc: Path) -> None:
    sharing = CardSharing(proc, 100)
    assert seen(sharing, on_card(101, "GPU-1"), on_card(200, "GPU-2")) == []
    assert len(seen(sharing, on_card(101, "GPU-2"))) == 1


def test_process_ids_of_another_namespace_say_nothing(proc: Path) -> None:
    assert seen(CardSharing(proc, 100), on_card(101), on_card(31337)) == []


def test_a_target_whose_process_is_unknown_has_no_strangers(proc: Path) -> None:
    assert seen(CardSharing(proc, None), on_card(101), on_card(200)) == []


def test_a_server_that_was_restarted_is_no_stranger_to_itself(proc: Path) -> None:
    sharing = CardSharing(proc, 100)
    seen(sharing, on_card(101))
    add_process(proc, 300, "vllm", 1)
    assert sharing.step([on_card(300)]) == ()
    restart = Event("server.restart", 6, "again", Severity.CRITICAL, (), labels(pid=300, cause="killed"))
    assert [*sharing.step([restart]), *seen(sharing, on_card(300))] == []


def test_strangers_reach_the_agreement() -> None:
    event = Event(STRANGER, 5, "", Severity.WARNING, labels(bdf="b"), labels(process="jupyter (pid 200)"))
    assert count_both(a_run(events=(event, event)), None, 0).strangers == ("jupyter (pid 200) on b",)
