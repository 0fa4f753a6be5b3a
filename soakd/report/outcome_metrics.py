"""How a run ended as samples of the catalogue, so that databases and dashboards know it: verdict, limits, growth,
measures. Pure.

Every sample bears the time of the run's end and, once journalled, the label ``run``. What a report does not know is a
sample without a value (``State.ABSENT``), never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from soakd.model import Kind, Labels, Metric, Outcome, Sample, State, labels
from soakd.report.facts import SeriesVerdict
from soakd.report.figures import Measure
from soakd.report.model import LimitLine, Report

_REPORT = "the run's report"
_SERIES = ("bdf", "gpu", "series")

OUTCOME = Metric(
    "soak_outcome", "", Kind.STATE, "Verdict of a run; the higher, the worse.", _REPORT,
    ("model", "profile", "simulated", "target"),
    (("PASS", 0), ("INCONCLUSIVE", 1), ("FAIL", 2)),
)  # fmt: skip
DURATION = Metric("soak_duration_seconds", "seconds", Kind.GAUGE, "Length of a run.", _REPORT)
COVERAGE = Metric(
    "soak_coverage_ratio", "ratio", Kind.GAUGE, "Share of the evidence wanted for the verdict that was there.", _REPORT
)
LIMITS = Metric("soak_limits", "limits", Kind.GAUGE, "Limits of a run by how each was judged.", _REPORT, ("outcome",))
LIMIT_OUTCOME = Metric(
    "soak_limit_outcome", "", Kind.STATE, "How one limit of a run was judged; the higher, the worse.", _REPORT,
    ("bdf", "gpu", "limit", "series"),
    (("PASS", 0), ("NOT_JUDGED", 1), ("INCONCLUSIVE", 2), ("FAIL", 3)),
)  # fmt: skip
GROWTH_BYTES = Metric(
    "soak_growth_bytes_per_hour", "bytes/h", Kind.GAUGE,
    "Growth of a memory series over a run: fitted slope, ends of its interval, and the smallest slope that the run "
    "could have told from none.", _REPORT, ("bdf", "bound", "gpu", "series"),
)  # fmt: skip
GROWTH_ITEMS = Metric(
    "soak_growth_items_per_hour", "items/h", Kind.GAUGE,
    "The same for what is counted, not weighed: open files, threads.", _REPORT, ("bdf", "bound", "gpu", "series"),
)  # fmt: skip
GROWTH_SHARE = Metric(
    "soak_growth_ratio_per_hour", "ratio/h", Kind.GAUGE,
    "Fitted slope as a share of the memory that the series lives in.", _REPORT, _SERIES,
)  # fmt: skip
GROWTH_VERDICT = Metric(
    "soak_growth_verdict", "", Kind.STATE, "What was said of a series' growth; the higher, the worse.", _REPORT,
    _SERIES, (("no_leak", 0), ("inconclusive", 1), ("leak", 2)),
)  # fmt: skip
GROWTH_SHAPE = Metric(
    "soak_growth_shape", "", Kind.STATE, "Shape of a series over a run.", _REPORT, _SERIES,
    (("flat", 0), ("warm-up", 1), ("linear", 2), ("staircase", 3), ("sawtooth", 4), ("step", 5), ("restart", 6),
     ("unknown", 7)),
)  # fmt: skip
GROWTH_FULL = Metric(
    "soak_growth_full_in_seconds", "seconds", Kind.GAUGE,
    "Time from the run's end until the memory is full at the slope found; absent where nothing grows.", _REPORT,
    _SERIES,
)  # fmt: skip
_RESULT = ("bound", "measure")
RESULT_SECONDS = Metric("soak_result_seconds", "seconds", Kind.GAUGE, "Latencies and times of a run with the ends of "
                        "their 99 % intervals.", _REPORT, _RESULT)  # fmt: skip
RESULT_REQUESTS = Metric("soak_result_requests_per_second", "requests/s", Kind.GAUGE, "Completed requests a second "
                         "over a run.", _REPORT, _RESULT)  # fmt: skip
RESULT_TOKENS = Metric("soak_result_tokens_per_second", "tokens/s", Kind.GAUGE, "Output tokens a second over a run.",
                       _REPORT, _RESULT)  # fmt: skip
RESULT_RATIO = Metric("soak_result_ratio", "ratio", Kind.GAUGE, "Shares over a run: errors, utilisation, decode rate "
                      "kept.", _REPORT, _RESULT)  # fmt: skip
RESULT_CELSIUS = Metric("soak_result_celsius", "celsius", Kind.GAUGE, "Mean temperature of the hottest card over a "
                        "run.", _REPORT, _RESULT)  # fmt: skip
RESULT_BYTES = Metric("soak_result_bytes", "bytes", Kind.GAUGE, "Peak memory over a run.", _REPORT, _RESULT)
RESULT_COUNT = Metric("soak_result_incidents", "incidents", Kind.GAUGE, "Rare things counted over a run, with exact "
                      "Poisson intervals.", _REPORT, _RESULT)  # fmt: skip

METRICS = (
    OUTCOME, DURATION, COVERAGE, LIMITS, LIMIT_OUTCOME, GROWTH_BYTES, GROWTH_ITEMS, GROWTH_SHARE, GROWTH_VERDICT,
    GROWTH_SHAPE, GROWTH_FULL, RESULT_SECONDS, RESULT_REQUESTS, RESULT_TOKENS, RESULT_RATIO, RESULT_CELSIUS,
    RESULT_BYTES, RESULT_COUNT,
)  # fmt: skip

BY_UNIT: Mapping[str, Metric] = {
    "seconds": RESULT_SECONDS,
    "requests/s": RESULT_REQUESTS,
    "tokens/s": RESULT_TOKENS,
    "ratio": RESULT_RATIO,
    "celsius": RESULT_CELSIUS,
    "bytes": RESULT_BYTES,
    "": RESULT_COUNT,
}
"""Where a measure goes. Growth has metrics of its own, by series."""


def outcome_samples(report: Report, at_ns: int) -> tuple[Sample, ...]:
    """The end of a run. ``at_ns`` is the wall-clock time of that end."""
    return (
        *_run(report, at_ns),
        *(_limit(line, at_ns) for line in report.limits),
        *(s for series in report.series for s in _growth(series, at_ns)),
        *(s for measure in report.measures for s in _measure(measure, at_ns)),
    )


def _run(report: Report, at_ns: int) -> Iterator[Sample]:
    target = report.target
    about = labels(
        model=target.model or None, profile=report.profile or None, target=target.url,
        simulated="yes" if report.simulated else "no",
    )  # fmt: skip
    yield _state(OUTCOME, report.outcome.value, at_ns, about)
    yield _sample(DURATION, report.duration_s, at_ns, ())
    yield _sample(COVERAGE, report.coverage, at_ns, ())
    judged = Counter(line.outcome for line in report.limits)
    for outcome in Outcome:
        yield _sample(LIMITS, float(judged[outcome]), at_ns, labels(outcome=outcome.value))


def _limit(line: LimitLine, at_ns: int) -> Sample:
    about = dict(line.labels)
    series = about.pop("series", "")
    return _state(
        LIMIT_OUTCOME, line.outcome.value, at_ns, tuple(sorted((*_about(series, about), ("limit", line.name))))
    )


def _growth(found: SeriesVerdict, at_ns: int) -> Iterator[Sample]:
    about = _about(found.metric, found.labels)
    yield _state(GROWTH_VERDICT, found.verdict, at_ns, about)
    yield _state(GROWTH_SHAPE, found.shape, at_ns, about)
    if found.per != "hour":
        return
    metric = GROWTH_BYTES if found.unit == "bytes" else GROWTH_ITEMS
    bounds = (
        ("fit", found.slope), ("low", found.slope_low), ("high", found.slope_high),
        ("detectable", found.smallest_detectable),
    )  # fmt: skip
    for bound, value in bounds:
        yield _sample(metric, value, at_ns, tuple(sorted((*about, ("bound", bound)))))
    if found.unit == "bytes":
        share = None if found.percent_per_hour is None else found.percent_per_hour / 100
        yield _sample(GROWTH_SHARE, share, at_ns, about)
        yield _sample(GROWTH_FULL, found.exhausted_in_s, at_ns, about)


def _measure(measure: Measure, at_ns: int) -> Iterator[Sample]:
    metric = BY_UNIT.get(measure.unit)
    if metric is None or measure.name.startswith("growth of "):
        return
    for bound, value in (("value", measure.value), ("low", measure.low), ("high", measure.high)):
        yield _sample(metric, value, at_ns, labels(measure=measure.name, bound=bound))


def _about(series: str, found: Mapping[str, str]) -> Labels:
    """The card, and the series by its metric with all labels but the card's: ``host_memory role=total``."""
    others = sorted((k, v) for k, v in found.items() if k not in ("gpu", "bdf"))
    text = " ".join((series, *(f"{name}={value}" for name, value in others))).strip()
    return labels(gpu=found.get("gpu") or None, bdf=found.get("bdf") or None, series=text or None)


def _sample(metric: Metric, value: float | None, at_ns: int, about: Labels) -> Sample:
    if value is None:
        return Sample.unknown(metric, State.ABSENT, at_ns, about, "the run could not tell")
    return Sample.ok(metric, value, at_ns, about)


def _state(metric: Metric, name: str, at_ns: int, about: Labels) -> Sample:
    code = dict(metric.codes).get(name)
    return _sample(metric, None if code is None else float(code), at_ns, about)
