"""What the server still holds when the load is over: KV blocks, VRAM, host memory, against before the load. Pure.

An allocator keeps pools and a cache keeps prefixes by design, so that memory held is told with its figures and fails
nothing. Blocks of the KV cache that requests hold are another matter: without a request there should be none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from soakd.analysis.evidence import RunEvidence, Track, without_sums
from soakd.analysis.series import NVML_PAGE_BYTES
from soakd.model import Finding, Severity
from soakd.quantities import format_bytes, format_duration

KV_CACHE = "server_kv_cache_usage_ratio"
_MEMORY = (
    ("gpu_memory_used_bytes", "VRAM", NVML_PAGE_BYTES),
    ("server_process_anon_swap_bytes", "host memory", 4096.0),
)
_KV_MATERIAL = 0.002
"""Share of the cache: a block of 16 tokens among a few thousand is less, a leaked request is more."""

_MEMORY_MATERIAL = 0.01
_BUSY = ("server_requests_running", "server_requests_waiting")


@dataclass(frozen=True, slots=True)
class Kept:
    """One series before the load, at its highest under load, and after it. ``after_s`` is how long after the end of
    the load the level was read."""

    track: Track
    before: float
    peak: float
    after: float
    after_s: float

    @property
    def kept(self) -> float:
        return self.after - self.before


def kept(evidence: RunEvidence, track: Track) -> Kept | None:
    """None without a reading before the load and two in the second half of the idle time after it."""
    end = evidence.measured_to_s
    settled = end + (evidence.duration_s - end) / 2
    before = track.y[track.x < evidence.idle_before_s]
    late = track.x > settled
    if evidence.duration_s <= end or not len(before) or late.sum() < 2:
        return None
    peak = float(np.max(track.y[track.x <= end])) if (track.x <= end).any() else float("nan")
    after_s = float(track.x[late][0]) - end
    # the lowest of the readings: what a straggler still held is not kept
    return Kept(track, float(np.median(before)), peak, float(np.min(track.y[late])), after_s)


def kept_findings(evidence: RunEvidence) -> tuple[Finding, ...]:
    """Changes no outcome."""
    if _still_busy(evidence):
        return ()
    # a server that was started anew in between has its own beginning, which was not under its load
    memory = () if evidence.event("server.restart") else tuple(_memory(evidence))
    return (*_kv_cache(evidence), *memory)


def _still_busy(evidence: RunEvidence) -> bool:
    """Whether somebody's requests were in the server at the very end: then what it holds says nothing."""
    tracks = [t for name in _BUSY for t in evidence.track(name) if len(t.y)]
    return any(t.x[-1] > evidence.measured_to_s and t.y[-1] > 0 for t in tracks)


def _kv_cache(evidence: RunEvidence) -> Iterable[Finding]:
    for track in evidence.track(KV_CACHE):
        found = kept(evidence, track)
        if found is None or found.kept <= _KV_MATERIAL:
            continue
        detail = (
            f"{found.after:.2%} of the KV cache is still held {format_duration(found.after_s)} after the load ended, "
            f"without a request in the server; {found.before:.2%} before the load (highest {found.peak:.2%}): "
            "blocks of requests that ended were not given back"
        )
        yield Finding(
            "idle.kv_cache", Severity.WARNING, "KV cache not given back", detail, evidence.end_ns, track.labels,
            track.metric, found.kept, "ratio",
        )  # fmt: skip


def _memory(evidence: RunEvidence) -> Iterable[Finding]:
    for metric, name, page in _MEMORY:
        where = {"role": "total"} if metric.startswith("server_process") else {}
        for track in without_sums(evidence.track(metric, **where)):
            found = kept(evidence, track)
            if found is None or found.kept <= max(page, _MEMORY_MATERIAL * found.before):
                continue
            taken = found.peak - found.before
            share = f", {min(found.kept / taken, 1.0):.0%} of what the load took at most" if taken > 0 else ""
            detail = (
                f"{format_bytes(found.before)} before the load, {format_bytes(found.after)} "
                f"{format_duration(found.after_s)} after it{share}; pools and caches keep memory by design, so this "
                "alone is no leak"
            )
            yield Finding(
                "idle.memory", Severity.INFO, f"{name}: {format_bytes(found.kept)} not given back after the load",
                detail, evidence.end_ns, track.labels, metric, found.kept, "bytes",
            )  # fmt: skip
