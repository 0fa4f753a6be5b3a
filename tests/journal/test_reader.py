from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soakd.errors import JournalError
from soakd.journal import Journal, JournalReader
from soakd.journal.sealing import CHUNK_ROWS
from soakd.model import Event, Kind, Metric, Sample, labels
from tests.support.readings import ENERGY, SECOND, T0, TEMPERATURE, card


async def fill(journal: Journal, count: int, run_id: str | None = None, start: int = 0) -> None:
    for at in range(start, start + count, 100):
        journal.add(
            [Sample.ok(TEMPERATURE, float(i % 50), T0 + i * SECOND, card(0)) for i in range(at, at + 100)], run_id
        )
        await journal.flush()


async def test_hot_and_sealed_rows_are_read_as_one(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    await fill(journal, 2 * CHUNK_ROWS + 176)
    await journal.close()  # sealing follows a commit: once closed, it is done
    with JournalReader(tmp_path) as reader:
        series = reader.read(TEMPERATURE.name)
        summary = reader.summary()
    count = 2 * CHUNK_ROWS + 176
    assert summary.sealed_rows == 2 * CHUNK_ROWS
    assert summary.hot_rows == 176
    assert list(series.at_ns) == [T0 + i * SECOND for i in range(count)]
    assert list(series.values) == [float(i % 50) for i in range(count)]


async def test_bounds_of_time_cut_chunks_and_hot_rows(journal: Journal, tmp_path: Path) -> None:
    await fill(journal, 1000)
    with JournalReader(tmp_path) as reader:
        cut = reader.read(TEMPERATURE.name, from_ns=T0 + 300 * SECOND, to_ns=T0 + 700 * SECOND)
    assert (cut.at_ns[0], cut.at_ns[-1]) == (T0 + 300 * SECOND, T0 + 699 * SECOND)


async def test_a_snapshot_never_shows_a_row_twice_or_not_at_all(journal: Journal, tmp_path: Path) -> None:
    with JournalReader(tmp_path) as reader:
        for start in range(0, 3000, 100):
            await fill(journal, 100, start=start)
            assert len(reader.read(TEMPERATURE.name).at_ns) == start + 100


async def test_runs_are_apart_and_together(journal: Journal, tmp_path: Path) -> None:
    await fill(journal, 100, "r1")
    await fill(journal, 200, "r2", start=100)
    with JournalReader(tmp_path) as reader:
        assert len(reader.read(TEMPERATURE.name, run_id="r1").at_ns) == 100
        assert len(reader.read(TEMPERATURE.name).at_ns) == 300
        assert [s.count for s in reader.series(run_id="r2")] == [200]


async def test_an_ambiguous_or_unknown_series_is_explained(journal: Journal, tmp_path: Path) -> None:
    journal.add([Sample.ok(TEMPERATURE, 1.0, T0, card(i)) for i in range(2)])
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        with pytest.raises(JournalError, match="has 2 series"):
            reader.read(TEMPERATURE.name)
        with pytest.raises(JournalError, match="no readings of nothing"):
            reader.read("nothing")


async def test_buckets_hold_every_reading_in_few_points(journal: Journal, tmp_path: Path) -> None:
    await fill(journal, 1000)
    with JournalReader(tmp_path) as reader:
        buckets = reader.buckets(TEMPERATURE.name, max_points=10)
        minutes = reader.buckets(TEMPERATURE.name, width_ns=60 * SECOND)
    assert len(buckets.start_ns) <= 10
    assert buckets.count.sum() == 1000
    assert (buckets.minimum.min(), buckets.maximum.max()) == (0.0, 49.0)
    assert np.average(buckets.mean, weights=buckets.count) == pytest.approx(24.5)
    assert set(np.diff(minutes.start_ns).tolist()) == {60 * SECOND}


async def test_an_increase_is_summed_over_epochs(journal: Journal, tmp_path: Path) -> None:
    values = [100.0, 130.0, 5.0, 25.0]
    journal.add([Sample.ok(ENERGY, v, T0 + i * SECOND, card(0)) for i, v in enumerate(values)])
    journal.add([Sample.ok(ENERGY, 1.0, T0, card(1))])
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert reader.increase(ENERGY.name, card(0)) == 55.0
        assert reader.increase(ENERGY.name, card(1)) is None
        assert reader.buckets(ENERGY.name, card(0)).increase.sum() == 55.0


async def test_events_by_kind_time_and_run(journal: Journal, tmp_path: Path) -> None:
    journal.add([Event("gpu.lost", T0 + 1, "a"), Event("gpu.lost.again", T0, "b"), Event("gpux", T0 + 2, "c")], "r")
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert [e.what for e in reader.events()] == ["b", "a", "c"]
        assert [e.what for e in reader.events(kind="gpu.lost")] == ["b", "a"]
        assert [e.what for e in reader.events(from_ns=T0 + 1, to_ns=T0 + 2)] == ["a"]
        assert [e.what for e in reader.events(limit=1)] == ["c"]
        assert reader.events(run_id="other") == ()


async def test_readings_out_of_order_are_read_in_order(journal: Journal, tmp_path: Path) -> None:
    metric = Metric("m_seconds", "seconds", Kind.GAUGE, "h", "s")
    journal.add([Sample.ok(metric, float(i), T0 - i, labels(a=1)) for i in range(5)])
    await journal.flush()
    with JournalReader(tmp_path) as reader:
        assert list(reader.read("m_seconds").values) == [4.0, 3.0, 2.0, 1.0, 0.0]


async def test_a_closed_journal_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    owner = Journal.open(tmp_path / "d")
    owner.add([Sample.ok(TEMPERATURE, 1.0, T0)])
    await owner.close()
    assert not (tmp_path / "d" / "journal.sqlite-wal").exists()
    with JournalReader(tmp_path / "d") as reader:
        assert list(reader.read(TEMPERATURE.name).values) == [1.0]
