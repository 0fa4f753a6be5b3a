from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from soakd.analysis.analyze import AnalyzeOptions, analyze_file
from soakd.analysis.ingest import FileSeries, read_series
from soakd.analysis.series import Leak
from soakd.errors import ConfigError, SoakdError

MIB = 2**20


def written(folder: Path, text: str | bytes, name: str = "series.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def only(folder: Path, text: str, column: str | None = None) -> FileSeries:
    (found,) = read_series(written(folder, text), column)
    return found


@pytest.mark.parametrize(
    ("header", "first", "per", "seconds"),
    [
        ("time_s", "30", "hour", 30.0),
        ("t_s", "30.5", "hour", 30.5),
        ("time_ms", "30000", "hour", 30.0),
        ("hours", "0.5", "hour", 1800.0),
        ("minutes", "2", "hour", 120.0),
        ("timestamp", "1767268800", "hour", 1767268800.0),
        ("timestamp", "1767268800000", "hour", 1767268800.0),
        ("time", "2026-01-01T12:00:00Z", "hour", 1767268800.0),
        ("time", "2026-01-01 12:00:00.000", "hour", 1767268800.0),
        ("time", "2026-01-01T13:00:00+01:00", "hour", 1767268800.0),
        ("timestamp", "2026/01/01 12:00:00.000", "hour", 1767268800.0),
        ("requests", "7", "request", 7.0),
        ("tokens", "300", "token", 300.0),
        ("turns", "3", "turn", 3.0),
        ("batches", "3", "batch", 3.0),
    ],
)
def test_the_first_column_is_time_or_work(tmp_path: Path, header: str, first: str, per: str, seconds: float) -> None:
    found = only(tmp_path, f"{header},rss_mib\n{first},1\n{first},2\n")
    assert found.per == per
    assert found.x[0] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("column", "scale", "unit", "page"),
    [
        ("vram_mib", MIB, "bytes", 2.0 * MIB),
        ("rss_gb", 1e9, "bytes", 4096.0),
        ("rss_gib", 2**30, "bytes", 4096.0),
        ("heap_kib", 1024.0, "bytes", 4096.0),
        ("allocated_bytes_small_pool", 1.0, "bytes", 4096.0),
        ("memory.used [MiB]", MIB, "bytes", 2.0 * MIB),
        ("DCGM_FI_DEV_FB_USED", MIB, "bytes", 2.0 * MIB),
        ("fds", 1.0, "fds", 1.0),
    ],
)
def test_the_unit_of_a_value_is_read_from_its_name(
    tmp_path: Path, column: str, scale: float, unit: str, page: float
) -> None:
    found = only(tmp_path, f"time_s,{column}\n0,3\n1,4\n")
    assert (found.y[0], found.unit, found.page) == (3 * scale, unit, page)


def test_units_in_the_cells_of_nvidia_smi_are_read(tmp_path: Path) -> None:
    text = "timestamp, memory.used [MiB], utilization.gpu [%]\n2026/01/01 12:00:00.000, 22107 MiB, 98 %\n"
    text += "2026/01/01 12:00:01.000, 22109 MiB, 97 %\n"
    found = read_series(written(tmp_path, text), "memory.used [MiB]")[0]
    assert found.y.tolist() == [22107 * MIB, 22109 * MIB]


def test_a_size_behind_a_number_goes_before_the_header(tmp_path: Path) -> None:
    found = only(tmp_path, "time_s,vram_mib\n0,1023 MiB\n1,1.5 GiB\n2,\n3,2048\n")
    assert found.unit == "bytes"
    assert found.y[[0, 1, 3]].tolist() == [1023 * MIB, 1536 * MIB, 2048 * MIB]


@pytest.mark.parametrize("card", ["index", "gpu", "uuid"])
def test_cards_below_each_other_are_parted(tmp_path: Path, card: str) -> None:
    rows = [f"{t},{name},{used} MiB" for t in range(0, 600, 10) for name, used in (("0", 10000), ("1", 12000 + t))]
    found = read_series(written(tmp_path, f"time_s, {card}, memory.used [MiB]\n" + "\n".join(rows)))
    mine = [s for s in found if s.name.startswith("memory.used")]
    assert [s.name for s in mine] == ['memory.used [MiB]{gpu="0"}', 'memory.used [MiB]{gpu="1"}']
    assert [float(s.y[-1] / MIB) for s in mine] == [10000.0, 12590.0]
    assert [len(s.x) for s in mine] == [60, 60]


def test_a_share_in_percent_named_gpu_parts_nothing(tmp_path: Path) -> None:
    rows = [f"{t},{(7 * t) % 31 if t % 3 else t % 40},{10000 + t}" for t in range(200)]
    found = read_series(written(tmp_path, "time_s,gpu,vram_mib\n" + "\n".join(rows)), "vram_mib")
    assert [len(s.x) for s in found] == [200]


@pytest.mark.parametrize("cell", ["10.0.0.1", "7B-instruct", "0x04", "2.11.0+cu130", "3f2a-11"])
def test_a_column_of_text_that_begins_with_a_digit_is_no_number(tmp_path: Path, cell: str) -> None:
    rows = "".join(f"{t},{cell},{t}\n" for t in range(9))
    assert only(tmp_path, "time_s,label,vram_mib\n" + rows).name == "vram_mib"


@pytest.mark.parametrize("label", ["run", "batch", "session_id"])
def test_a_label_that_is_the_same_in_every_row_is_no_axis(tmp_path: Path, label: str) -> None:
    rows = "".join(f"1,{t},{t}\n" for t in range(9))
    found = read_series(written(tmp_path, f"{label},time_s,vram_mib\n" + rows), "vram_mib")
    assert [(s.per, float(s.x[-1])) for s in found] == [("hour", 8.0)]


def test_decimal_commas_between_semicolons(tmp_path: Path) -> None:
    assert only(tmp_path, "time_s;vram_mib\n0;8000,5\n1,5;8001\n").y.tolist() == [8000.5 * MIB, 8001.0 * MIB]


@pytest.mark.parametrize("name", ["memory_free_mib", "DCGM_FI_DEV_FB_FREE", "node_memory_MemAvailable_bytes"])
def test_what_is_free_is_judged_upside_down(tmp_path: Path, name: str) -> None:
    scale = MIB if name.endswith("bytes") else 1
    rows = "".join(f"{t},{(20000 - t / 36) * scale:.1f}\n" for t in range(0, 7200, 10))
    found = analyze_file(written(tmp_path, f"time_s,{name}\n" + rows), AnalyzeOptions(total=32 * 2**30))
    assert found.judgement.verdict is Leak.LEAK
    assert found.judgement.slope == pytest.approx(100 * MIB, rel=0.05)
    assert found.judgement.headroom == pytest.approx(19800 * MIB, rel=0.01)
    assert "upside down" in found.series.notes[0]
    # a chart shows what was judged
    assert float(found.series.y[-1]) == pytest.approx(12966 * MIB, rel=0.001)


def test_a_total_of_tokens_holds_its_parts(tmp_path: Path) -> None:
    counts = [20 * t + (t % 7) ** 2 * 30 for t in range(720)]
    work = [sum(counts[: i + 1]) // 100 for i in range(720)]
    rows = "".join(f"{10 * i},{n},{n},{2 * n},{10000 + n * 0.002:.3f}\n" for i, n in enumerate(work))
    text = "time_s,prompt_tokens,completion_tokens,total_tokens,rss_mib\n" + rows
    by = {w.per: w for w in analyze_file(written(tmp_path, text), AnalyzeOptions(column="rss_mib")).by_work}
    assert by["token"].slope == pytest.approx(1000 * MIB, rel=0.02)


def test_gaps_duplicates_order_and_unknowns_are_repaired_and_said(tmp_path: Path) -> None:
    rows = [f"{t},{100 + t}" for t in (3, 1, 2, 2, 4, 5, 6, 7, 60)]
    found = only(tmp_path, "time_s,rss_mib\n" + "\n".join([*rows, "8,nan", "9,", "10,N/A"]))
    notes = " / ".join(found.notes)
    assert "3 of 12 readings are unknown" in notes
    assert "not in order" in notes
    assert "share their time" in notes
    assert "1 gap of" in notes


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_comments_and_byte_order_marks(tmp_path: Path, delimiter: str) -> None:
    text = f"\ufeff# exported by hand\n\ntime_s{delimiter}rss_mib\r\n0{delimiter}1\r\n1{delimiter}2\r\n"
    assert only(tmp_path, text).y.tolist() == [MIB, 2 * MIB]


def test_json_lines_and_a_packed_file(tmp_path: Path) -> None:
    lines = b"\n".join(orjson.dumps({"time_s": i, "rss_mib": 5 + i, "labels": {"a": 1}}) for i in range(5))
    plain = read_series(written(tmp_path, lines, "a.jsonl"))
    packed = read_series(written(tmp_path, gzip.compress(lines), "a.jsonl.gz"))
    assert plain[0].y.tolist() == packed[0].y.tolist() == [MIB * (5 + i) for i in range(5)]


def test_a_range_query_of_prometheus(tmp_path: Path) -> None:
    result = [
        {"metric": {"__name__": "process_resident_memory_bytes", "job": f"vllm{n}"},
         "values": [[1767268800 + 15 * i, str(1e9 + n * 1e6 * i)] for i in range(200)]}
        for n in range(2)
    ]  # fmt: skip
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    path = written(tmp_path, orjson.dumps(body), "range.json")
    found = analyze_file(path, AnalyzeOptions())
    assert found.series.name == 'process_resident_memory_bytes{job="vllm1"}'
    assert found.judgement.verdict.value == "leak"
    assert found.judgement.slope == pytest.approx(1e6 / 15 * 3600, rel=1e-3)
    assert [o.verdict.value for o in found.others] == ["no_leak"]


def test_a_turn_log_of_club_3090_is_counted_by_turns(tmp_path: Path) -> None:
    head = "session_id,turn_id,t_ms,vram_mib,ttft_ms,decode_tps,completion_tokens,status,error,decode_basis\n"
    rows = [f"{i // 5 + 1},{i % 5 + 1},{900 + i % 7},{22000 + 6 * i},80,41.5,300,200,,decode" for i in range(25)]
    path = written(tmp_path, head + "\n".join(rows), "turn-log.csv")
    found = analyze_file(path, AnalyzeOptions())
    assert (found.series.name, found.judgement.per) == ("vram_mib", "turn")
    assert found.judgement.verdict.value == "leak"
    assert found.judgement.slope == pytest.approx(6 * MIB, rel=0.01)


def test_a_gpu_log_of_club_3090_is_parted_by_card(tmp_path: Path) -> None:
    rows = [f"1,{i + 1},{gpu},{(10000, 8000 + 10 * i)[gpu]},50" for i in range(20) for gpu in range(2)]
    path = written(tmp_path, "session_id,turn_id,gpu_index,memory_used_mib,utilization_gpu_pct\n" + "\n".join(rows))
    found = {s.name: s for s in read_series(path)}
    assert found['memory_used_mib{gpu="1"}'].x.tolist() == list(range(1, 21))
    assert found['memory_used_mib{gpu="0"}'].y.tolist() == [10000 * MIB] * 20


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", None, "an empty file"),
        ("\n\n", None, "an empty file"),
        ("time_s,rss_mib\n", None, "no readings"),
        ("0,1\n1,2\n", 1, "numbers where the header should be"),
        ("time_s\n1\n", 1, "one column only"),
        ("time_s,rss_mib\n0,1\n1,abc\n2,3\n", 3, "'abc'"),
        ("time_s,rss_mib\n0,1\n\n1,2,3\n", 4, "3 cells under 2"),
        ("time,rss_mib\n2026-01-01T00:00:00Z,1\nyesterday,2\n", 3, "'yesterday'"),
        ("host,rss_mib\na,1\nb,2\n", 1, "neither time nor a count of work"),
        ("time_s,host\n0,a\n1,b\n", 2, "no column of numbers"),
        ('{"time_s": 1, "rss_mib": 2}\n{"time_s": 2,\n', 2, "not JSON"),
        ("[1, 2]\n", 1, "a int"),
        ('{"status": "error", "error": "bad query"}', None, "bad query"),
        ('{"status":"success","data":{"resultType":"vector","result":[]}}', None, "vector"),
        ('{"status":"success","data":{"resultType":"matrix","result":[]}}', None, "no series"),
        ('{"data":{"resultType":"matrix","result":[{"metric":{},"values":[[1]]}]}}', None, "values"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_series(path)
    problem = caught.value.problems[0]
    assert problem.file == str(path)
    assert problem.line == line
    assert said in str(problem)
    assert problem.wanted


def test_missing_files_binaries_and_unknown_columns_are_refused(tmp_path: Path) -> None:
    good = written(tmp_path, "time_s,rss_mib\n0,1\n1,2\n")
    with pytest.raises(ConfigError, match="No such file"):
        read_series(tmp_path / "absent.csv")
    with pytest.raises(ConfigError, match="binary"):
        read_series(written(tmp_path, b"\x7fELF\0\0\0", "x.bin"))
    with pytest.raises(ConfigError, match="one of: rss_mib"):
        read_series(good, "vram_mib")
    with pytest.raises(ConfigError, match="none of them clearly memory"):
        analyze_file(written(tmp_path, "time_s,a,b\n0,1,2\n1,2,3\n", "ab.csv"), AnalyzeOptions())


def test_a_constant_column_and_an_unknown_one(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},500" for i in range(100))
    constant = analyze_file(written(tmp_path, f"time_s,rss_mib\n{rows}\n"), AnalyzeOptions())
    assert (constant.judgement.verdict.value, constant.judgement.shape.value) == ("no_leak", "flat")
    with pytest.raises(ConfigError, match="no column of numbers"):
        analyze_file(written(tmp_path, "time_s,rss_mib\n0,nan\n1,nan\n"), AnalyzeOptions("rss_mib"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(alphabet='time_s,rss0123456789.\n"-e {}[]:', max_size=200).map(str.encode))
@example(b"{}")
def test_no_file_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(data)
    with suppress(SoakdError):
        assert analyze_file(path, AnalyzeOptions()).exit_code in (0, 1, 3)
