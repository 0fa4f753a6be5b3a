"""A real InfluxDB for the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.databases import Influx, influxd, missing


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influx]:
    if missing("influxd"):
        pytest.skip("influxd is not installed")
    with influxd(tmp_path_factory.mktemp("influx")) as server:
        yield server


@pytest.fixture
def outage_s() -> int:
    """Seconds of the feed that fall into the outage; SOAKD_FULL=1 makes it half an hour."""
    return 1800 if os.environ.get("SOAKD_FULL") else 120
