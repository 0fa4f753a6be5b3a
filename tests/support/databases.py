"""Real databases on loopback: Debian's InfluxDB 1.6 and VictoriaMetrics, each started and ended by its own pid."""

from __future__ import annotations

import csv
import io
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Point = tuple[str, frozenset[tuple[str, str]], int]
"""Measurement, tags, nanoseconds."""
Fields = dict[str, float | str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def missing(program: str) -> bool:
    return shutil.which(program) is None


@dataclass(frozen=True, slots=True)
class Influx:
    """InfluxDB 1.x: ``/write`` and ``/query``; it has no v2 API (see ``influx_shim``)."""

    url: str
    pid: int

    def create(self, database: str) -> None:
        _post(f"{self.url}/query?" + urllib.parse.urlencode({"q": f'CREATE DATABASE "{database}"'}))

    def query(self, database: str, query: str) -> list[dict[str, str]]:
        """Rows of the answer, each with ``name`` and ``tags`` beside the columns asked for."""
        parameters = urllib.parse.urlencode({"db": database, "q": query, "epoch": "ns"})
        request = urllib.request.Request(f"{self.url}/query?{parameters}", headers={"Accept": "application/csv"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read().decode()
        rows: list[dict[str, str]] = []
        for block in text.split("\n\n"):
            rows += csv.DictReader(io.StringIO(block.strip("\n")))
        return rows

    def points(self, database: str) -> dict[Point, Fields]:
        """Everything in it, by measurement, tags and time."""
        found: dict[Point, Fields] = {}
        for measurement in self._measurements(database):
            for row in self.query(database, f'SELECT * FROM "{measurement}" GROUP BY *'):
                tags = frozenset(_tags(row.pop("tags")))
                name, at_ns = row.pop("name"), int(row.pop("time"))
                found[(name, tags, at_ns)] = {k: _number(v) for k, v in row.items() if v != ""}
        return found

    def _measurements(self, database: str) -> list[str]:
        parameters = urllib.parse.urlencode({"db": database, "q": "SHOW MEASUREMENTS"})
        series = json.loads(_get(f"{self.url}/query?{parameters}"))["results"][0].get("series", [])
        return [str(value[0]) for one in series for value in one["values"]]


@contextmanager
def influxd(directory: Path) -> Iterator[Influx]:
    port, admin = free_port(), free_port()
    config = directory / "influxd.conf"
    config.write_text(
        f"""reporting-enabled = false
bind-address = "127.0.0.1:{admin}"
[meta]
  dir = "{directory}/meta"
[data]
  dir = "{directory}/data"
  wal-dir = "{directory}/wal"
  query-log-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
[monitor]
  store-enabled = false
[continuous_queries]
  enabled = false
"""
    )
    with _running(["influxd", "-config", str(config)], "Listening for signals") as pid:
        yield Influx(f"http://127.0.0.1:{port}", pid)


@dataclass(frozen=True, slots=True)
class Victoria:
    """VictoriaMetrics: takes v2 writes; times are cut to milliseconds."""

    url: str
    pid: int

    def points(self) -> dict[tuple[str, frozenset[tuple[str, str]], int], float]:
        """Every value by name, labels and milliseconds."""
        _get(f"{self.url}/internal/force_flush")
        match = urllib.parse.urlencode({"match[]": '{__name__!=""}'})
        found: dict[tuple[str, frozenset[tuple[str, str]], int], float] = {}
        for line in _get(f"{self.url}/api/v1/export?{match}").splitlines():
            data = json.loads(line)
            name = data["metric"].pop("__name__")
            tags = frozenset((k, v) for k, v in data["metric"].items() if k != "db")
            for value, at_ms in zip(data["values"], data["timestamps"], strict=True):
                found[(name, tags, at_ms)] = value
        return found

    def invalid_rows(self) -> int:
        for line in _get(f"{self.url}/metrics").splitlines():
            if line.startswith('vm_rows_invalid_total{type="influx"}'):
                return int(line.split()[-1])
        return 0


@contextmanager
def victoria(directory: Path) -> Iterator[Victoria]:
    port = free_port()
    command = [
        "victoria-metrics",
        f"-storageDataPath={directory}/vm",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-loggerLevel=INFO",
    ]
    with _running(command, "started VictoriaMetrics in") as pid:
        yield Victoria(f"http://127.0.0.1:{port}", pid)


@contextmanager
def _running(command: list[str], ready: str) -> Iterator[int]:
    """Start, wait for the line that says it answers, and end it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        _read_until(process.stdout, ready)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _read_until(stream: IO[str], ready: str) -> None:
    seen: list[str] = []
    for line in stream:
        seen.append(line)
        if ready in line:
            return
    raise RuntimeError(f"the server ended before it was ready: {''.join(seen[-5:])}")


def _tags(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(","):
        name, _, value = pair.partition("=")
        if value:
            yield name, value


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30) as answer:
        answer.read()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return str(answer.read().decode())
