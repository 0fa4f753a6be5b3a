from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.procfs import (
    descendants,
    memory_cgroup,
    parse_counters,
    parse_open_files_limit,
    parse_sizes,
    parse_stat,
    process_table,
    redacted,
)
from tests.support.proc_tree import add_process, stat_line, write


@given(st.text(min_size=1, max_size=15), st.integers(1, 2**22), st.integers(0, 2**50))
def test_any_command_name_is_parsed(command: str, pid: int, start: int) -> None:
    stat = parse_stat(stat_line(pid, command, 7, start=start, threads=4, cpu=11))
    assert (stat.pid, stat.command, stat.parent, stat.start_ticks, stat.threads, stat.cpu_ticks) == (
        pid, command, 7, start, 4, 11,
    )  # fmt: skip


@given(st.text(max_size=120))
def test_any_text_is_a_stat_or_a_value_error(text: str) -> None:
    try:
        parse_stat(text)
    except ValueError:
        pass


@given(st.text(max_size=200))
def test_tables_take_any_text(text: str) -> None:
    assert all(v >= 0 for v in parse_sizes(text).values())
    assert all(v >= 0 for v in parse_counters(text).values())


def test_sizes_are_bytes_and_counts_are_not() -> None:
    assert parse_sizes("VmRSS:\t  12 kB\nThreads:\t3\nName:\tx\n") == {"VmRSS": 12288, "Threads": 3}


def test_the_soft_limit() -> None:
    assert parse_open_files_limit("Max open files            1024                 4096                 files\n") == 1024
    assert parse_open_files_limit("Max open files            unlimited            unlimited            files\n") is None


def test_a_tree_with_a_loop_ends() -> None:
    table = {1: parse_stat(stat_line(1, "a", 2)), 2: parse_stat(stat_line(2, "b", 1))}
    assert [s.pid for s in descendants(table, 1)] == [1, 2]
    assert descendants(table, 9) == ()


def test_the_table_skips_what_is_no_process(tmp_path: Path) -> None:
    add_process(tmp_path, 5, "a")
    write(tmp_path, {"self/stat": "x", "6/stat": "garbage", "meminfo": ""})
    assert list(process_table(tmp_path)) == [5]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("v", "--api-key", "sk-1", "--port", "1"), "v --api-key *** --port 1"),
        (("v", "--hf-token=abc"), "v --hf-token=***"),
        (("env", "API_KEY=abc", "x"), "env API_KEY=*** x"),
        (("v", "--max-num-batched-tokens", "8", "--tokenizer", "t"), "v --max-num-batched-tokens 8 --tokenizer t"),
    ],
)
def test_secrets_are_taken_out_of_command_lines(arguments: tuple[str, ...], shown: str) -> None:
    assert redacted(arguments) == shown


def test_groups_of_both_versions(tmp_path: Path) -> None:
    write(tmp_path, {"1/cgroup": "0::/a/b\n", "2/cgroup": "3:memory:/m\n0::/\n", "3/cgroup": "nothing\n"})
    assert memory_cgroup(tmp_path, Path("/cg"), 1) == (Path("/cg/a/b"), 2)
    assert memory_cgroup(tmp_path, Path("/cg"), 2) == (Path("/cg/memory/m"), 1)
    assert memory_cgroup(tmp_path, Path("/cg"), 3) is None
    assert memory_cgroup(tmp_path, Path("/cg"), 4) is None
