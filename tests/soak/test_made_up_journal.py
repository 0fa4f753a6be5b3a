"""What a run left in the journal, made up reading by reading, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from soakd.analysis.evidence import LoadEvidence, RunEvidence
from soakd.collectors.host_pressure import BOOT_TIME
from soakd.collectors.server_metrics import METRICS as SERVER_METRICS
from soakd.journal import Journal, JournalReader
from soakd.journal.records import RunRecord
from soakd.load import metrics as load
from soakd.model import Event, Metric, RunState, Sample, Severity, labels
from soakd.ports import Item
from soakd.soak.conclude import latency_findings
from soakd.soak.gather import Window, gather
from soakd.soak.plan import Phases
from soakd.soak.reboots import host_reboot

NS = 10**9
START = 1_700_000_000 * NS
RUN = "run-1"
PLANNED = Phases(60.0, 300.0, 6840.0, 60.0)
WINDOW = Window(RUN, START, START + 7260 * NS)
E2E_P95 = next(m for name, q, m in load.PERCENTILES if (name, q) == ("e2e", 0.95))
TOKENS = next(m for m in SERVER_METRICS if m.name == "server_generated_tokens_total")


async def keep(folder: Path, items: Sequence[Item], after: Sequence[Item] = ()) -> JournalReader:
    """``after`` belongs to no run."""
    journal = Journal.open(folder)
    journal.start_run(RunRecord(RUN, START, RunState.RUNNING, "http://127.0.0.1:1", "hold", False, "boot-a", b"{}"))
    journal.add(list(items), RUN)
    journal.add(list(after), None)
    await journal.flush()
    await journal.close()
    return JournalReader(folder)


def readings(metric: Metric, values: Sequence[float], every_s: float = 10.0, **tags: str) -> list[Item]:
    return [Sample.ok(metric, v, START + int(i * every_s * NS), labels(**tags)) for i, v in enumerate(values)]


def evidence_of(reader: JournalReader) -> RunEvidence:
    return gather(
        reader, WINDOW, PLANNED, LoadEvidence(), counters=(), intervals={}, local=True, gpu_note="", journal_dropped=0
    )


def restart_at(seconds: float) -> Event:
    return Event("server.restart", START + int(seconds * NS), "the server runs again as process 8", Severity.CRITICAL)


async def test_a_latency_that_doubles_after_a_restart_names_the_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    at = np.arange(726) * 10.0
    p95 = 0.4 * np.exp(0.03 * rng.standard_normal(726)) * np.where(at < 3640, 1.0, 2.0)
    log = Event("server.log_tail", START + 3630 * NS, "a line\nanother")
    with await keep(tmp_path, [*readings(E2E_P95, p95.tolist()), restart_at(3595), log]) as reader:
        (finding,) = latency_findings(reader, WINDOW, evidence_of(reader))
    assert finding.source == "latency.load_e2e_p95_seconds"
    assert finding.detail.startswith("E2E P95 doubled (0.399 to 0.8012)")
    assert (finding.severity, finding.unit) == (Severity.WARNING, "seconds")
    assert "40s after the restart (the server runs again as process 8)" in finding.detail
    assert (finding.at_ns - START) / NS == pytest.approx(3640, abs=15)


async def test_a_steady_latency_is_no_finding_whatever_happened(tmp_path: Path) -> None:
    p95 = 0.4 * np.exp(0.03 * np.random.default_rng(2).standard_normal(726))
    with await keep(tmp_path, [*readings(E2E_P95, p95.tolist()), restart_at(3595)]) as reader:
        assert latency_findings(reader, WINDOW, evidence_of(reader)) == ()


async def test_work_is_counted_over_restarts_and_replicas(tmp_path: Path) -> None:
    one = [float(v) for v in [*range(100, 400, 10), *range(0, 300, 10)]]
    two = [float(v) for v in range(0, 1200, 20)]
    requests = [float(v) for v in range(60)]
    items = [
        *readings(TOKENS, one, replica="a"), *readings(TOKENS, two, replica="b"),
        *readings(load.COMPLETED, requests), *readings(load.TOKENS_OUT, [1.0] * 60),
    ]  # fmt: skip
    with await keep(tmp_path, items) as reader:
        work = dict(evidence_of(reader).work)
    assert work["request"].y[-1] == 59
    # 290 before the restart and 290 after it, from 0 on; and 1,180 of the other
    assert work["token"].y[-1] == 580 + 1180
    assert (np.diff(work["token"].y) >= 0).all()


async def test_the_clients_tokens_count_where_the_server_tells_none(tmp_path: Path) -> None:
    with await keep(tmp_path, readings(load.TOKENS_OUT, [0.0, 50.0, 90.0])) as reader:
        assert dict(evidence_of(reader).work)["token"].y[-1] == 90


def reboot(after_s: float, before: str) -> Event:
    attrs = labels(boot_id="boot-b", boot_id_before=before)
    return Event("host.reboot", START + int(after_s * NS), "the host was restarted since", Severity.CRITICAL, (), attrs)


async def test_a_killed_run_is_put_down_to_the_host_by_its_boot_id(tmp_path: Path) -> None:
    booted = [Sample.ok(BOOT_TIME, 1.0, START)]
    with await keep(tmp_path, booted, [reboot(9000, "boot-a")]) as reader:
        found = host_reboot(reader, WINDOW, "boot-a", "")
        assert found is not None
        assert (found.kind, found.at_ns) == ("host.reboot", WINDOW.end_ns)
        assert host_reboot(reader, WINDOW, "boot-a", "boot-a") is None
        assert host_reboot(reader, WINDOW, "boot-z", "") is None
        assert host_reboot(reader, WINDOW, "boot-a", "boot-b") is not None


async def test_a_restart_seen_within_the_run_is_not_told_twice(tmp_path: Path) -> None:
    with await keep(tmp_path, [reboot(3000, "boot-a")]) as reader:
        assert host_reboot(reader, WINDOW, "boot-a", "boot-b") is None
