"""The parts of a report that are read off one source each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from soakd.analysis.evidence import CanaryEvidence, LoadEvidence, Percentiles
from soakd.analysis.latency import Retention
from soakd.analysis.limits_growth import Growth
from soakd.load.messages import Done, ReplicaCounts
from soakd.model import Event, Severity
from soakd.report import facts, figures
from soakd.report.model import iso
from soakd.soak.gather import percentiles
from soakd.soak.run_facts import RunFacts
from soakd.soak.session import LOG_TAIL, Seen
from soakd.soak.usage import cpu_share

_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def important_first(events: Sequence[Event], most: int) -> tuple[Event, ...]:
    """At most ``most`` events in order of time; what is left out is the least severe and the latest."""
    shown = [e for e in events if e.kind != LOG_TAIL]
    kept = sorted(shown, key=lambda e: (_RANK[e.severity], e.at_ns))[:most]
    return tuple(sorted(kept, key=lambda e: e.at_ns))


def latency(found: Percentiles) -> figures.Latency:
    return figures.Latency(found.p50, found.p90, found.p95, found.p99, found.max, found.mean, found.count)


def load_of(done: Done | None, load: LoadEvidence, run: RunFacts) -> figures.Load:
    """The load section; every figure is unknown when the load process never told its totals."""
    if done is None:
        nothing = figures.Latency()
        return figures.Load(None, None, None, None, None, None, None, None, None, {}, nothing, nothing, nothing,
                            nothing, mode=run.arrivals, seed=run.seed)  # fmt: skip
    total, counts = done.total, done.total.counts
    known = counts.completed > counts.usage_missing
    warm = total.histograms.warm_ttft.count > 0
    return figures.Load(
        offered=counts.offered,
        started=counts.started,
        completed=counts.completed,
        failed=counts.failed,
        dropped=counts.dropped,
        rate_per_s=total.rate_per_s,
        concurrency_asked=total.concurrency_asked,
        concurrency_achieved=total.concurrency,
        output_tokens_per_s=load.output_tokens_per_s,
        errors=dict(counts.errors),
        ttft_s=latency(load.ttft),
        ttft_from_due_s=latency(load.ttft_from_due),
        itl_s=latency(load.itl),
        e2e_s=latency(load.e2e),
        ttft_content_s=latency(percentiles(total.histograms.content_ttft)),
        gap_per_request_s=latency(percentiles(total.histograms.tpot)),
        mode=run.arrivals,
        rate_asked_per_s=run.rate_asked,
        input_tokens=counts.tokens_in if known else None,
        output_tokens=counts.tokens_out if known else None,
        reasoning_tokens=counts.reasoning_tokens or None,
        input_tokens_per_s=counts.tokens_in / total.real_s if known and total.real_s > 0 else None,
        requests_without_usage=counts.usage_missing,
        finish_reasons=dict(counts.finishes),
        empty_answers=load.empty,
        decode_retention=_retention(load.decode),
        replicas=replicas_of(done.replicas, total.real_s) if len(done.replicas) > 1 else (),
        ttft_cold_s=latency(percentiles(total.histograms.cold_ttft)) if warm else figures.Latency(),
        ttft_warm_s=latency(percentiles(total.histograms.warm_ttft)),
        cached_input_tokens=counts.cached_tokens if known else None,
        seed=run.seed,
    )


def replicas_of(counts: Sequence[ReplicaCounts], real_s: float) -> tuple[figures.ReplicaLoad, ...]:
    ended = sum(c.completed + c.failed for c in counts)
    return tuple(
        figures.ReplicaLoad(
            c.url, c.completed, c.failed, (c.completed + c.failed) / ended if ended else None,
            c.tokens_out / real_s if real_s > 0 else None, c.ttft.quantile_s(0.95), c.e2e.quantile_s(0.95),
        )
        for c in counts
    )  # fmt: skip


def _retention(found: Retention | None) -> figures.DecodeRetention:
    if found is None:
        return figures.DecodeRetention(None, None, None, why="too few windows to compare an early and a late quarter")
    values = (found.ratio, found.first, found.last)
    ratio, first, last = (None if v is None else float(v) for v in values)
    return figures.DecodeRetention(ratio, first, last, why=found.why)


def prompt_mix(run: RunFacts, done: Done | None) -> facts.PromptMix:
    """The notes of the specification say what was cut; the shares sent are counted by tag."""
    tags = dict(done.total.counts.tags) if done else {}
    sent = sum(tags.values())
    bands = _bands(run.prompt_options, tags, sent)
    shares = ", ".join(f"{tag} {n / sent:.0%}" for tag, n in sorted(tags.items())) if sent and not bands else ""
    why = "; ".join([*run.prompt_notes, f"sent: {shares}"] if shares else run.prompt_notes)
    return facts.PromptMix(bands, cut=any("cut to" in note for note in run.prompt_notes), why=why)


def _bands(options: str, tags: Mapping[str, int], sent: int) -> tuple[facts.PromptBand, ...]:
    """Of a mixture: each band as asked, and what was sent of it (tagged ``low-high``). Empty for other workloads."""
    asked = orjson.loads(options or "{}").get("bands") or ()
    return tuple(
        facts.PromptBand(b["low"], b["high"], b["share"],
                         tags.get(f"{b['low']}-{b['high']}", 0) / sent if sent else None)
        for b in asked
    )  # fmt: skip


def canary_of(found: CanaryEvidence, prompts: int) -> facts.Canary:
    mode = found.mode if found.mode in ("exact", "garbage_only") else "off"
    return facts.Canary(
        "exact" if mode == "exact" else "garbage_only" if mode == "garbage_only" else "off",
        prompts, found.checks, found.changed, found.garbled, found.failed,
        iso(found.first_at_ns) if found.first_at_ns else None, found.first, found.why,
    )  # fmt: skip


def self_check(seen: Seen) -> facts.SelfCheck:
    first, last = (seen.usage[0], seen.usage[-1]) if len(seen.usage) > 1 else (None, None)
    telemetry = cpu_share(first, last) if first and last else None
    rss = (first.owner_rss_bytes, last.owner_rss_bytes) if first and last else (None, None)
    done = seen.done
    if done is None:
        return facts.SelfCheck(None, "the load process ended before its totals were in", telemetry_cpu_share=telemetry,
                               rss_start_bytes=rss[0], rss_end_bytes=rss[1])  # fmt: skip
    check = done.self_check
    return facts.SelfCheck(
        bool(done.bottleneck),
        done.bottleneck,
        check.loop_lag_p99_s,
        check.send_lag_p99_s,
        check.cpu_share,
        check.coalesced_share,
        telemetry,
        rss_start_bytes=rss[0],
        rss_end_bytes=rss[1],
        workers=done.workers or None,
        worker_rss_peak_bytes=done.worker_rss_bytes,
    )


def series_of(grown: Growth) -> facts.SeriesVerdict:
    found = grown.judgement
    return facts.SeriesVerdict(
        grown.track.metric,
        dict(grown.track.labels),
        grown.track.unit,
        found.verdict.value,
        found.shape.value,
        found.slope,
        found.slope_low,
        found.slope_high,
        found.per,
        found.percent_per_hour,
        found.smallest_detectable,
        found.why,
        found.points,
        found.used_points,
        _seconds(found.time_to_exhaustion, found.per) if (found.slope_low or 0.0) > 0 else None,
        found.headroom,
        _seconds(found.time_to_cap, found.per),
        found.slope_now,
        tuple(facts.WorkRate(w.per, w.amount, w.slope, w.low, w.high, w.share) for w in grown.work),
        grown.detected_at_s,
    )


def _seconds(hours: float | None, per: str) -> float | None:
    return hours * 3600 if hours is not None and per == "hour" else None


def clock_steps(events: Sequence[Event], start_ns: int) -> tuple[facts.ClockStep, ...]:
    return tuple(
        facts.ClockStep(iso(e.at_ns), (e.at_ns - start_ns) / 1e9, float(dict(e.attrs).get("step_seconds", "nan")))
        for e in events
        if e.kind == "clock.step"
    )


def log_tails(events: Sequence[Event]) -> tuple[facts.LogTail, ...]:
    return tuple(
        facts.LogTail(iso(e.at_ns), dict(e.attrs).get("source", ""), tuple(e.what.splitlines()))
        for e in events
        if e.kind == LOG_TAIL
    )[:20]
