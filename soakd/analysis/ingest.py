"""Reads series from a file: CSV, JSONL, Prometheus range-query JSON. Refuses with file and line.

The first column is time or a count of work (``columns`` knows the names); club-3090's ``turn-log.csv`` and
``gpu-log.csv`` are counted by their rows, since their ``t_ms`` is how long a turn took.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import orjson

from soakd.analysis.columns import HOST_PAGE, SIZES, Axis, Unit, axis_of, is_free, is_memory, unit_of
from soakd.analysis.series import Floats
from soakd.errors import ConfigError, Problem

MOST_BYTES = 512 * 2**20
_MOST_CARDS = 64
_EMPTY = frozenset({"", "nan", "null", "none", "n/a", "[n/a]", "na", "-", "[not supported]", "+inf", "inf", "-inf"})
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_UNIT = re.compile(r"[A-Za-z%°/]{1,5}")
_CARDS = frozenset({
    "index", "gpu", "gpu_index", "gpu_id", "gpu_uuid", "uuid", "device", "card", "bdf", "pci.bus_id", "gpu_bus_id",
})  # fmt: skip
"""Columns that name the card of a row, where the rows of several cards stand below each other (nvidia-smi, dmon)."""
_TURN_LOG = ("session_id", "turn_id")


@dataclass(frozen=True, slots=True)
class FileSeries:
    """One column. ``x`` is seconds where ``per`` is ``hour``; ``y`` is in ``unit`` (``bytes`` where the suffix was a
    size). ``notes`` say what was repaired (gaps, duplicates, order)."""

    name: str
    unit: str
    per: str
    x: Floats
    y: Floats
    page: float
    notes: tuple[str, ...]

    @property
    def is_memory(self) -> bool:
        return is_memory(self.name, self.unit)

    @property
    def is_free(self) -> bool:
        return is_free(self.name, self.unit)


@dataclass(frozen=True, slots=True)
class _Table:
    """Text cells with the line of each row."""

    path: Path
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]


def read_series(path: Path, column: str | None = None) -> tuple[FileSeries, ...]:
    """Every series of the file, or the one named. Raises ConfigError."""
    text = _read(path)
    start = text.lstrip()[:1]
    if start == "{" and (found := _prometheus(path, text)) is not None:
        return _chosen(path, found, column)
    table = _jsonl_table(path, text) if start in ("{", "[") else _csv_table(path, text)
    if not table.rows:
        raise _refuse(path, None, "", "no readings", "a header line and at least one row")
    if tuple(h.lower() for h in table.header[:2]) == _TURN_LOG:
        return _chosen(path, _turn_log(table), column)
    return _chosen(path, _columns(table, column), column)


def _refuse(path: Path, line: int | None, key: str, found: str, wanted: str) -> ConfigError:
    return ConfigError([Problem(str(path), line, key, found, wanted)])


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _refuse(path, None, "", f"{path.stat().st_size} bytes", f"at most {MOST_BYTES}")
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as unpacked:
                data = unpacked.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise _refuse(path, None, "", f"more than {MOST_BYTES} bytes when unpacked", "a smaller file")
    except (OSError, EOFError, zlib.error) as e:
        raise _refuse(
            path, None, "", getattr(e, "strerror", None) or str(e), "a readable CSV, JSONL or Prometheus JSON file"
        ) from e
    if not data.strip():
        raise _refuse(path, None, "", "an empty file", "a header line and at least one row")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:4096]:
        raise _refuse(path, None, "", "binary data", "a CSV, JSONL or Prometheus JSON file")
    return data.decode("utf-8-sig", "replace")


def _chosen(path: Path, found: Sequence[FileSeries], column: str | None) -> tuple[FileSeries, ...]:
    if column is None:
        return tuple(found)
    mine = tuple(s for s in found if s.name == column) or tuple(s for s in found if s.name.split("{")[0] == column)
    if not mine:
        names = ", ".join(s.name for s in found[:12])
        raise _refuse(path, None, "--column", f"no column {column!r}", f"one of: {names}")
    return mine


def _csv_table(path: Path, text: str) -> _Table:
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("# ")), None)
    if first is None:
        raise _refuse(path, 1, "", "comments only", "a header line and at least one row")
    head = lines[first]
    delimiter = max((",", ";", "\t"), key=head.count)
    if head.count(delimiter) == 0:
        wanted = "a header such as time_s,vram_mib"
        raise _refuse(path, first + 1, "", f"one column only ({head[:60]!r})", wanted)
    reader = csv.reader(io.StringIO("\n".join(lines[first:])), delimiter=delimiter)
    rows: list[tuple[str, ...]] = []
    places: list[int] = []
    try:
        for cells in reader:
            if cells and not (len(cells) == 1 and not cells[0].strip()) and not cells[0].startswith("# "):
                stripped = (cell.strip() for cell in cells)
                rows.append(tuple(stripped if delimiter == "," else map(_with_point, stripped)))
                places.append(first + reader.line_num)
    except csv.Error as e:
        raise _refuse(path, first + reader.line_num, "", str(e), "CSV with one reading a line") from e
    header = tuple(h.strip().strip('"').removeprefix("#") for h in rows[0])
    if all(_is_number(h) for h in header):
        raise _refuse(path, places[0], "", "numbers where the header should be", "a header such as time_s,vram_mib")
    for row, place in zip(rows[1:], places[1:], strict=True):
        if len(row) != len(header):
            found = f"{len(row)} cells under {len(header)} column names"
            raise _refuse(path, place, "", found, "as many cells as the header has names")
    return _Table(path, header, tuple(rows[1:]), tuple(places[1:]))


def _with_point(cell: str) -> str:
    """Spreadsheets that part columns by semicolons write 8000,5."""
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell


def _jsonl_table(path: Path, text: str) -> _Table:
    records: list[tuple[int, object]] = []
    if text.lstrip().startswith("["):
        records = [(1, r) for r in _json(path, 1, text)]  # type: ignore[attr-defined]
    else:
        records = [(i, _json(path, i, line)) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    header: dict[str, None] = {}
    for place, record in records:
        if not isinstance(record, dict):
            raise _refuse(path, place, "", f"a {type(record).__name__}", "one JSON object a line")
        header.update(dict.fromkeys(k for k, v in record.items() if not isinstance(v, dict | list)))
    rows = tuple(tuple(_cell(r.get(h)) for h in header) for _, r in records if isinstance(r, dict))
    return _Table(path, tuple(header), rows, tuple(i for i, _ in records))


def _json(path: Path, line: int, text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise _refuse(path, line, "", f"not JSON ({e})", "one JSON object a line, or a range query's answer") from e


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    match = _NUMBER.match(text)
    return bool(match) and match is not None and match.end() == len(text)


def _turn_log(table: _Table) -> list[FileSeries]:
    """club-3090: a row is a turn; its GPU log has a row for each card and turn."""
    lower = [h.lower() for h in table.header]
    card = lower.index("gpu_index") if "gpu_index" in lower else None
    found = []
    for place, name in enumerate(table.header):
        if lower[place] in (*_TURN_LOG, "gpu_index", "t_ms", "status", "error") or not _numeric(table, place):
            continue
        groups = sorted({r[card] for r in table.rows}) if card is not None else [None]
        for group in groups:
            chosen = [i for i, r in enumerate(table.rows) if group is None or (card is not None and r[card] == group)]
            y, unit = _measured(table, place, chosen)
            label = name if group is None else f'{name}{{gpu="{group}"}}'
            found.append(_series(label, unit, Axis("turn"), np.arange(1.0, len(chosen) + 1), y))
    return found


def _columns(table: _Table, column: str | None) -> list[FileSeries]:
    place, axis = _axis(table)
    every = list(range(len(table.rows)))
    x = _stamps(table, place) if axis.stamp else _numbers(table, place, every, Unit("", axis.scale, 0.0))
    if not np.isfinite(x).any():
        raise _refuse(
            table.path, table.lines[0], table.header[place], "no time that can be read", "a time on each line"
        )
    found = []
    for card, rows in _cards(table):
        for i, name in enumerate(table.header):
            if i == place or not name or not (name == column or _numeric(table, i)):
                continue
            y, unit = _measured(table, i, rows)
            label = f'{name}{{gpu="{card}"}}' if card else name
            found.append(_series(label, unit, axis, x[rows], y))
    if not found:
        wanted_text = "a column of numbers beside the first"
        raise _refuse(table.path, table.lines[0], "", "no column of numbers to judge", wanted_text)
    return found


def _axis(table: _Table) -> tuple[int, Axis]:
    """The first column that is time or work; its own first column comes before any other."""
    axes = [(i, axis) for i, name in enumerate(table.header) if (axis := axis_of(name)) is not None]
    fitting = [(i, axis) for i, axis in axes if axis.stamp or _numeric(table, i)]
    counting = [(i, axis) for i, axis in fitting if _counts(table, i, axis)]
    if fitting:
        return (counting or fitting)[0]
    known = "time_s, t_s, time_ms, hours, an ISO time, requests, tokens or turns"
    raise _refuse(
        table.path,
        1,
        table.header[0] if table.header else "",
        "the first column is neither time nor a count of work",
        known,
    )


def _counts(table: _Table, place: int, axis: Axis) -> bool:
    """Whether a column of work counts: one that says the same in every row is the label of a run."""
    return axis.per == "hour" or len(table.rows) < 2 or len({r[place] for r in table.rows}) > 1


def _numeric(table: _Table, place: int) -> bool:
    """Whether most of a column's cells that are not empty are numbers (one that is not will be refused by line)."""
    cells = [r[place] for r in table.rows[:1000] if r[place].lower() not in _EMPTY]
    return bool(cells) and sum(_parted(c) is not None for c in cells) > len(cells) / 2


def _parted(cell: str) -> tuple[float, str] | None:
    """A number and the unit behind it (nvidia-smi writes '22107 MiB', percent and watts likewise), or None."""
    match = _NUMBER.match(cell)
    if match is None:
        return None
    rest = cell[match.end() :].strip()
    return (float(match.group()), rest.lower()) if not rest or _UNIT.fullmatch(rest) else None


def _numbers(table: _Table, place: int, rows: Sequence[int], unit: Unit) -> Floats:
    values, _ = _cells(table, place, rows)
    return values * unit.scale


def _cells(table: _Table, place: int, rows: Sequence[int]) -> tuple[Floats, list[str]]:
    """The numbers of a column, NaN where empty, and the unit written behind each."""
    values, units = np.full(len(rows), np.nan), [""] * len(rows)
    for j, i in enumerate(rows):
        cell = table.rows[i][place]
        if cell.lower() in _EMPTY:
            continue
        parts = _parted(cell)
        if parts is None:
            hint = " with a decimal point" if _DECIMAL_COMMA.fullmatch(cell) else ""
            raise _refuse(table.path, table.lines[i], table.header[place], f"found {cell!r}", f"give a number{hint}")
        values[j], units[j] = parts
    return values, units


def _measured(table: _Table, place: int, rows: Sequence[int]) -> tuple[Floats, Unit]:
    """A column in its unit. A size behind a number (``3 GiB``) goes before what the header says."""
    values, units = _cells(table, place, rows)
    unit = unit_of(table.header[place], _typical(values))
    sizes = np.array([SIZES.get(u, 0.0) if len(u) > 1 else 0.0 for u in units])
    if not sizes.any():
        return values * unit.scale, unit
    scales = np.where(sizes > 0, sizes, unit.scale)
    return values * scales, replace(unit, name="bytes", scale=1.0, page=unit.page or HOST_PAGE)


def _cards(table: _Table) -> list[tuple[str, list[int]]]:
    """The rows of each card where those of several stand below each other, else all rows under no name."""
    every = list(range(len(table.rows)))
    for place, name in enumerate(table.header):
        if name.lower().replace(" ", "_") not in _CARDS:
            continue
        cells = [r[place] for r in table.rows]
        names = sorted(set(cells))
        k = len(names)
        turns = sum(a == b for a, b in zip(cells, cells[k:], strict=False))
        if 2 <= k <= _MOST_CARDS and len(cells) >= 3 * k and turns >= 0.9 * (len(cells) - k):
            return [(n, [i for i in every if cells[i] == n]) for n in names]
    return [("", every)]


def _stamps(table: _Table, place: int) -> Floats:
    cells = [r[place] for r in table.rows]
    known = [c for c in cells if c.lower() not in _EMPTY]
    if known and all(_is_number(c) for c in known):
        raw = np.array([float(c) if _is_number(c) else np.nan for c in cells])
        return raw / _epoch_divisor(float(np.nanmedian(raw)))
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        values[i] = np.nan if cell.lower() in _EMPTY else _seconds_of(table, i, place, cell)
    return values


def _epoch_divisor(typical: float) -> float:
    """Seconds, ms, us or ns since the epoch by size; a small number is seconds since some start."""
    for least, divisor in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if typical >= least:
            return divisor
    return 1.0


def _seconds_of(table: _Table, row: int, place: int, cell: str) -> float:
    text = cell.replace("/", "-", 2) if re.match(r"\d{4}/", cell) else cell
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        wanted = "an ISO time such as 2026-01-31T12:00:00Z, or seconds"
        raise _refuse(table.path, table.lines[row], table.header[place], repr(cell), wanted) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _typical(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _prometheus(path: Path, text: str) -> list[FileSeries] | None:
    """A range query's answer (``/api/v1/query_range``), or None where it is something else."""
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict) or not ({"data", "resultType", "status"} & set(answer)):
        return None
    if answer.get("status") == "error":
        raise _refuse(path, None, "", f"Prometheus answered {answer.get('error')!r}", "a successful range query")
    data = answer.get("data", answer)
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        kind = data.get("resultType") if isinstance(data, dict) else type(data).__name__
        raise _refuse(path, None, "data.resultType", repr(kind), "'matrix': ask /api/v1/query_range, not /api/v1/query")
    found = []
    for n, result in enumerate(data.get("result", [])):
        try:
            metric = dict(result.get("metric", {}))
            pairs = [(float(at), float(value)) for at, value in result["values"]]
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise _refuse(path, None, f"data.result[{n}]", str(e), "'metric' and 'values' of [time, text]") from e
        name = metric.pop("__name__", f"series_{n}")
        labels = ",".join(f'{k}="{v}"' for k, v in sorted(metric.items()))
        table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        unit = unit_of(name, _typical(table[:, 1]))
        label = f"{name}{{{labels}}}" if labels else name
        found.append(_series(label, unit, Axis("hour"), table[:, 0], table[:, 1] * unit.scale))
    if not found:
        raise _refuse(path, None, "data.result", "no series", "a query that matched something in its range")
    return found


def _series(name: str, unit: Unit, axis: Axis, x: Floats, y: Floats) -> FileSeries:
    known = np.isfinite(x) & np.isfinite(y)
    notes = []
    if is_free(name, unit.name):
        notes.append("it says what is free: judged upside down, as what is taken")
    if not known.all():
        notes.append(f"{int((~known).sum())} of {len(known)} readings are unknown and were left out")
    at = x[known]
    if len(at) > 1:
        steps = np.diff(at)
        if (steps < 0).any():
            notes.append("the readings were not in order and were sorted")
        ordered = np.diff(np.sort(at))
        if (ordered == 0).any():
            notes.append(
                f"{int((ordered == 0).sum())} readings share their {'time' if axis.per == 'hour' else axis.per}"
            )
        usual = float(np.median(ordered))
        if usual > 0 and (gaps := int((ordered > 5 * usual).sum())):
            notes.append(f"{gaps} {'gap' if gaps == 1 else 'gaps'} of more than five usual intervals")
    return FileSeries(name, unit.name, axis.per, x, y, unit.page, tuple(notes))
