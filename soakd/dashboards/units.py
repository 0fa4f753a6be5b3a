"""Units of the catalogue in Grafana's words."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from soakd.model import Metric


class Per(enum.Enum):
    """A counter's gain, in which time; the value is InfluxQL's."""

    NOTHING = ""
    INTERVAL = "interval"
    SECOND = "1s"
    MINUTE = "1m"
    HOUR = "1h"


# Grafana reads the first letter after "si:" as a prefix if it is one: "si:T/s" would be tera of "/s".
GRAFANA: Mapping[str, str] = {
    "": "none",
    "bytes": "bytes",
    "bytes/s": "binBps",
    "bytes/h": "si:B/h",
    "items/h": "suffix:/h",
    "ratio": "percentunit",
    "ratio/h": "percentunit",
    "seconds": "s",
    "celsius": "celsius",
    "watts": "watt",
    "hertz": "hertz",
    "joules": "joule",
    "requests/s": "reqps",
    "tokens/s": "suffix:tokens/s",
    "transfers/s": "si:transfers/s",
    "lanes": "prefix:x",
}
_PER_SECOND: Mapping[str, str] = {
    "bytes": "binBps",
    "seconds": "percentunit",
    "requests": "reqps",
    "tokens": "suffix:tokens/s",
    "joules": "watt",
}


def unit_of(metric: Metric, per: Per = Per.NOTHING) -> str:
    """Grafana's unit of a metric, or of what a counter gains; what is merely counted is ``short``."""
    if metric.name.endswith("_per_minute"):
        per = Per.MINUTE
    if per in (Per.NOTHING, Per.INTERVAL):
        return GRAFANA.get(metric.unit, "short")
    if per is Per.SECOND:
        return _PER_SECOND.get(metric.unit, f"suffix:{metric.unit}/s")
    return f"suffix:{metric.unit}/{'min' if per is Per.MINUTE else 'h'}"
