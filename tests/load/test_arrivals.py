from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soakd.errors import ConfigError
from soakd.load.arrivals import Open, Process, Trace, due_times, expected_requests, flat
from soakd.load.senders import every, share


def times(curve: tuple[tuple[float, float], ...], duration: float, process: Process = "constant") -> list[float]:
    return list(due_times(Open(curve, process), duration, "seed"))


def test_a_constant_rate_is_even_and_exact() -> None:
    found = times(flat(4.0), 3.0)
    assert found == pytest.approx([0.125 + n / 4 for n in range(12)])


def test_poisson_gaps_have_the_mean_and_the_spread_of_a_poisson_process() -> None:
    found = times(flat(100.0), 400.0, "poisson")
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert len(found) == pytest.approx(40_000, rel=0.02)
    assert statistics.pstdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.03)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_gamma_gaps_have_the_burstiness_asked(burstiness: float) -> None:
    found = list(due_times(Open(flat(100.0), "gamma", burstiness), 400.0, "seed"))
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert statistics.mean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.pvariance(gaps) / statistics.mean(gaps) ** 2 == pytest.approx(burstiness, rel=0.1)


def test_a_ramp_brings_the_integral_of_its_rate() -> None:
    found = times(((0.0, 0.0), (1.0, 10.0)), 100.0)
    assert len(found) == 500
    assert sum(1 for t in found if t < 50) == 125


def test_a_ramp_down_to_nothing_ends() -> None:
    assert len(times(((0.0, 10.0), (1.0, 0.0)), 100.0)) == 500


def test_a_jump_changes_the_rate_at_once() -> None:
    found = times(((0.0, 1.0), (0.5, 1.0), (0.5, 10.0), (1.0, 10.0)), 20.0)
    assert (sum(1 for t in found if t < 10), sum(1 for t in found if t >= 10)) == (10, 100)


def test_a_stretch_without_load_is_skipped() -> None:
    found = times(((0.0, 2.0), (0.25, 2.0), (0.25, 0.0), (0.75, 0.0), (0.75, 2.0), (1.0, 2.0)), 40.0)
    assert len(found) == 40
    assert not [t for t in found if 10.001 < t < 29.999]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 200)), min_size=2, max_size=6),
    st.sampled_from(["constant", "poisson", "gamma"]),
)
def test_times_never_go_back_nor_leave_the_stage(points: list[tuple[float, float]], process: Process) -> None:
    curve = ((0.0, points[0][1]), *sorted(points), (1.0, points[-1][1]))
    found = list(due_times(Open(curve, process, 2.0), 10.0, "seed"))
    assert found == sorted(found)
    assert all(0 <= t <= 10.0 for t in found)
    if process == "constant":
        assert abs(len(found) - expected_requests(curve, 10.0)) <= 1


def test_the_seed_alone_decides_the_times() -> None:
    one, again = (list(due_times(Open(flat(50.0)), 10.0, "7:0")) for _ in range(2))
    assert one == again != list(due_times(Open(flat(50.0)), 10.0, "8:0"))


def test_times_are_drawn_lazily() -> None:
    endless = due_times(Open(flat(1000.0)), 7 * 86_400.0, "seed")
    assert len(list(itertools.islice(endless, 10))) == 10


@given(st.integers(1, 7))
def test_the_shards_together_are_exactly_the_whole(shards: int) -> None:
    whole = times(flat(50.0), 4.0, "poisson")
    parts = [every(due_times(Open(flat(50.0)), 4.0, "seed"), shard, shards) for shard in range(shards)]
    assert sorted(itertools.chain(*parts)) == whole


@given(st.integers(0, 1000), st.integers(1, 16))
def test_shares_add_up(whole: int, shards: int) -> None:
    parts = [share(whole, shard, shards) for shard in range(shards)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


def trace(tmp_path: Path, text: str, **options: object) -> list[float]:
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    return list(due_times(Trace(str(file), **options), 100.0, ""))  # type: ignore[arg-type]


def test_a_trace_is_replayed_from_its_first_time(tmp_path: Path) -> None:
    assert trace(tmp_path, "1000.0\n1001.5\n\n1003\n") == [0.0, 1.5, 3.0]


def test_a_trace_of_json_lines_at_twice_the_speed(tmp_path: Path) -> None:
    assert trace(tmp_path, '{"t": 10}\n{"t": 14}\n', field="t", speedup=2.0) == [0.0, 2.0]


def test_a_trace_that_repeats_goes_on_until_the_end_of_the_stage(tmp_path: Path) -> None:
    found = trace(tmp_path, "0\n10\n20\n", repeat=True)
    assert found == [float(t) for t in range(0, 100, 10)]


def test_a_trace_that_can_not_be_read_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace\.jsonl:2.*'noon'"):
        trace(tmp_path, "1\nnoon\n")
    with pytest.raises(ConfigError, match="No such file"):
        list(due_times(Trace(str(tmp_path / "none")), 1.0, ""))
