"""What the server itself counts: its ``/metrics``, mapped to common names for vLLM (v0 and v1), SGLang and llama.cpp.

Sources: vLLM docs/usage/metrics.md and vllm/v1/metrics/loggers.py; SGLang references/production_metrics.md; llama.cpp
tools/server/README.md. Prompt tokens count cached ones on every server; llama.cpp counts them apart, so they are added.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from pydantic import Field

from soakd.errors import TargetError
from soakd.fields import ConfigModel, Seconds
from soakd.model import Event, Kind, Labels, Metric, Sample, Severity, State, labels
from soakd.ports import CollectorContext, Item
from soakd.targets.access import Access, ask

KIND = "server_metrics"


def _metric(name: str, unit: str, kind: Kind, help_: str, source: str, *extra: str) -> Metric:
    return Metric(name, unit, kind, help_, source, ("replica", *extra))


RUNNING = _metric("server_requests_running", "requests", Kind.GAUGE, "Requests in execution.",
                  "vllm:num_requests_running, sglang:num_running_reqs, llamacpp:requests_processing")  # fmt: skip
WAITING = _metric("server_requests_waiting", "requests", Kind.GAUGE, "Requests accepted and not yet in execution.",
                  "vllm:num_requests_waiting, sglang:num_queue_reqs, llamacpp:requests_deferred")  # fmt: skip
KV_USAGE = _metric("server_kv_cache_usage_ratio", "ratio", Kind.GAUGE,
                   "Share of the KV cache held by requests (the fullest engine of a replica).",
                   "vllm:kv_cache_usage_perc (v1) or vllm:gpu_cache_usage_perc (v0), sglang:token_usage, "
                   "llamacpp:kv_cache_usage_ratio (until 2025)")  # fmt: skip
KV_CAPACITY = _metric("server_kv_cache_capacity_tokens", "tokens", Kind.GAUGE, "Tokens that the KV cache can hold.",
                      "vllm:cache_config_info num_gpu_blocks x block_size; sglang:max_total_num_tokens")  # fmt: skip
KV_WASTE = _metric("server_kv_cache_waste_bound_ratio", "ratio", Kind.GAUGE,
                   "Upper bound of KV cache lost in last blocks (internal fragmentation): running x (block_size - 1)"
                   " / (num_gpu_blocks x block_size). A paged cache has no external fragmentation.",
                   "vllm:num_requests_running, vllm:cache_config_info")  # fmt: skip
KV_EVICTABLE = _metric("server_kv_cache_evictable_ratio", "ratio", Kind.GAUGE,
                       "Share of the KV cache that only holds prefixes nobody uses now: evictable / max_total tokens.",
                       "sglang:kv_evictable_tokens, sglang:max_total_num_tokens")  # fmt: skip
PREEMPTIONS = _metric("server_preemptions_total", "requests", Kind.COUNTER,
                      "Requests thrown out of execution for lack of KV cache and computed again.",
                      "vllm:num_preemptions_total, sglang:num_retracted_requests_total")  # fmt: skip
RETRACTED = _metric("server_requests_retracted", "requests", Kind.GAUGE, "Requests retracted for lack of KV cache.",
                    "sglang:num_retracted_reqs")  # fmt: skip
GENERATED = _metric("server_generated_tokens_total", "tokens", Kind.COUNTER, "Tokens generated.",
                    "vllm:generation_tokens_total, sglang:generation_tokens_total, llamacpp:tokens_predicted_total")  # fmt: skip  # noqa: E501
PROMPT = _metric("server_prompt_tokens_total", "tokens", Kind.COUNTER, "Prompt tokens, those from the cache included.",
                 "vllm:prompt_tokens_total, sglang:prompt_tokens_total, "
                 "llamacpp:prompt_tokens_total + llamacpp:prompt_tokens_cached_total")  # fmt: skip
QUERIES = _metric("server_prefix_cache_queries_total", "tokens", Kind.COUNTER, "Prompt tokens looked up in the cache.",
                  "vllm:prefix_cache_queries_total, vllm:gpu_prefix_cache_queries_total, sglang:prompt_tokens_total, "
                  "llamacpp:prompt_tokens_total + llamacpp:prompt_tokens_cached_total")  # fmt: skip
HITS = _metric("server_prefix_cache_hits_total", "tokens", Kind.COUNTER, "Prompt tokens found in the cache.",
               "vllm:prefix_cache_hits_total, vllm:gpu_prefix_cache_hits_total, sglang:cached_tokens_total, "
               "llamacpp:prompt_tokens_cached_total")  # fmt: skip
DRAFTED = _metric("server_spec_draft_tokens_total", "tokens", Kind.COUNTER, "Tokens proposed by speculative decoding.",
                  "vllm:, llamacpp:spec_decode_num_draft_tokens_total")  # fmt: skip
ACCEPTED = _metric("server_spec_accepted_tokens_total", "tokens", Kind.COUNTER, "Proposed tokens that were accepted.",
                   "vllm:, llamacpp:spec_decode_num_accepted_tokens_total")  # fmt: skip
COMPLETED = _metric("server_requests_completed_total", "requests", Kind.COUNTER,
                    "Requests that ended, by finish reason where the server tells it.",
                    "vllm:request_success_total finished_reason, sglang:num_requests_total", "reason")  # fmt: skip
ABORTED = _metric("server_requests_aborted_total", "requests", Kind.COUNTER, "Requests aborted by client or server.",
                  "sglang:num_aborted_requests_total; vllm:request_success_total finished_reason=abort")  # fmt: skip
CORRUPTED = _metric("server_requests_corrupted_total", "requests", Kind.COUNTER,
                    "Requests with NaN in their logits (VLLM_COMPUTE_NANS_IN_LOGITS=1).",
                    "vllm:corrupted_requests_total")  # fmt: skip
DECODES = _metric("server_decode_calls_total", "calls", Kind.COUNTER, "Calls of llama_decode().",
                  "llamacpp:n_decode_total")  # fmt: skip
METRICS = (RUNNING, WAITING, KV_USAGE, KV_CAPACITY, KV_WASTE, KV_EVICTABLE, PREEMPTIONS, RETRACTED, GENERATED, PROMPT,
           QUERIES, HITS, DRAFTED, ACCEPTED, COMPLETED, ABORTED, CORRUPTED, DECODES)  # fmt: skip

_LLAMA_PROMPT = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")
_NAMES: Mapping[Metric, tuple[tuple[str, ...], ...]] = {
    RUNNING: (("vllm:num_requests_running",), ("sglang:num_running_reqs",), ("llamacpp:requests_processing",)),
    WAITING: (("vllm:num_requests_waiting",), ("sglang:num_queue_reqs",), ("llamacpp:requests_deferred",)),
    KV_USAGE: (("vllm:kv_cache_usage_perc",), ("vllm:gpu_cache_usage_perc",), ("sglang:token_usage",),
               ("llamacpp:kv_cache_usage_ratio",)),
    KV_CAPACITY: (("sglang:max_total_num_tokens",),),
    PREEMPTIONS: (("vllm:num_preemptions_total",), ("sglang:num_retracted_requests_total",)),
    RETRACTED: (("sglang:num_retracted_reqs",),),
    GENERATED: (("vllm:generation_tokens_total",), ("sglang:generation_tokens_total",),
                ("llamacpp:tokens_predicted_total",)),
    PROMPT: (("vllm:prompt_tokens_total",), ("sglang:prompt_tokens_total",), _LLAMA_PROMPT),
    QUERIES: (("vllm:prefix_cache_queries_total",), ("vllm:gpu_prefix_cache_queries_total",),
              ("sglang:prompt_tokens_total",), _LLAMA_PROMPT),
    HITS: (("vllm:prefix_cache_hits_total",), ("vllm:gpu_prefix_cache_hits_total",), ("sglang:cached_tokens_total",),
           ("llamacpp:prompt_tokens_cached_total",)),
    DRAFTED: (("vllm:spec_decode_num_draft_tokens_total",), ("llamacpp:spec_decode_num_draft_tokens_total",)),
    ACCEPTED: (("vllm:spec_decode_num_accepted_tokens_total",), ("llamacpp:spec_decode_num_accepted_tokens_total",)),
    COMPLETED: (("vllm:request_success_total",), ("sglang:num_requests_total",)),
    ABORTED: (("sglang:num_aborted_requests_total",),),
    CORRUPTED: (("vllm:corrupted_requests_total",),),
    DECODES: (("llamacpp:n_decode_total",),),
}  # fmt: skip
"""For each metric the alternatives, best first; the names of one alternative are added up (the first must be there)."""

_CACHE_INFO = "vllm:cache_config_info"
_EVICTABLE = "sglang:kv_evictable_tokens"
_WANTED = tuple({n for group in _NAMES.values() for names in group for n in names} | {_CACHE_INFO, _EVICTABLE})
_HIGHEST = (KV_USAGE,)
_MAX_LINES = 5000
_OFF = "start the server with --metrics (llama.cpp) or --enable-metrics (SGLang)"


class Config(ConfigModel):
    """``urls``: the roots of the API servers when there is more than the target's own; each is a ``replica``."""

    urls: tuple[str, ...] = Field(default=(), max_length=32)
    api_key_env: str = ""
    ca_file: Path | None = None
    verify_tls: bool = True
    timeout: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """One sample of an exposition: its name, labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_exposition(text: str) -> tuple[Line, ...]:
    """The lines this collector knows, of Prometheus text. Raises ValueError for a line that is malformed.

    All other lines are left out before parsing: the histograms are most of an answer and would cost most of the time.
    """
    kept = [line for line in text.splitlines() if line.startswith(_WANTED)][:_MAX_LINES]
    return tuple(
        Line(sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families("\n".join(kept) + "\n")
        for sample in family.samples
        if sample.name in _WANTED and not math.isnan(sample.value) and _first_rank(sample.labels)
    )


def _first_rank(tags: Mapping[str, str]) -> bool:
    """Tensor- and pipeline-parallel ranks report the same requests; one of them counts."""
    return all(tags.get(name, "0") in ("0", "") for name in ("tp_rank", "pp_rank"))


def translate(lines: Sequence[Line], replica: str, now: int) -> tuple[list[Sample], list[Metric]]:
    """Common samples, and the metrics that this server does not have."""
    engines = sorted({_engine(line) for line in lines if line.name != _CACHE_INFO})
    samples: list[Sample] = []
    for engine in engines:
        own = [line for line in lines if _engine(line) == engine]
        samples += _of_engine(own, f"{replica}#{engine}" if len(engines) > 1 else replica, now)
    found = {sample.metric for sample in samples}
    return samples, [metric for metric in METRICS if metric not in found]


def _engine(line: Line) -> str:
    return line.labels.get("engine") or line.labels.get("dp_rank") or "0"


def _of_engine(lines: Sequence[Line], replica: str, now: int) -> list[Sample]:
    tags = labels(replica=replica)
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    samples: list[Sample] = []
    for metric, alternatives in _NAMES.items():
        names = next((names for names in alternatives if names[0] in by_name), ())
        found = [line for name in names for line in by_name.get(name, ())]
        if not found:
            continue
        if metric is COMPLETED:
            samples += _by_reason(found, replica, now)
        else:
            values = [line.value for line in found]
            samples.append(Sample.ok(metric, max(values) if metric in _HIGHEST else sum(values), now, tags))
    return samples + _kv_cache(by_name, tags, now)


def _by_reason(lines: Sequence[Line], replica: str, now: int) -> list[Sample]:
    sums: dict[str, float] = {}
    for line in lines:
        reason = line.labels.get("finished_reason", "any")
        sums[reason] = sums.get(reason, 0.0) + line.value
    tagged = [Sample.ok(COMPLETED, n, now, labels(replica=replica, reason=reason)) for reason, n in sums.items()]
    if "abort" in sums:
        tagged.append(Sample.ok(ABORTED, sums["abort"], now, labels(replica=replica)))
    return tagged


def _kv_cache(by_name: Mapping[str, Sequence[Line]], tags: Labels, now: int) -> list[Sample]:
    samples: list[Sample] = []
    info = by_name.get(_CACHE_INFO, ())
    blocks = int(info[0].labels["num_gpu_blocks"]) if info and _is_count(info[0], "num_gpu_blocks") else 0
    size = int(info[0].labels["block_size"]) if info and _is_count(info[0], "block_size") else 0
    running = sum(line.value for line in by_name.get("vllm:num_requests_running", ()))
    if blocks and size:
        capacity = blocks * size
        samples.append(Sample.ok(KV_CAPACITY, capacity, now, tags))
        samples.append(Sample.ok(KV_WASTE, min(1.0, running * (size - 1) / capacity), now, tags))
    total = sum(line.value for line in by_name.get("sglang:max_total_num_tokens", ()))
    evictable = by_name.get(_EVICTABLE, ())
    if total and evictable:
        samples.append(Sample.ok(KV_EVICTABLE, sum(line.value for line in evictable) / total, now, tags))
    return samples


def _is_count(line: Line, label: str) -> bool:
    return line.labels.get(label, "").isdigit()


@dataclass(frozen=True, slots=True)
class _Trouble:
    state: State
    why: str


class ServerMetricsCollector:
    """One session for all replicas. What a server does not have is said once after each (re)start of it."""

    def __init__(self, config: Config, context: CollectorContext) -> None:
        self._config = config
        self._clock = context.clock
        urls = config.urls or ((context.target.url,) if context.target else ())
        key = os.environ.get(config.api_key_env) if config.api_key_env else None
        self._access = tuple(
            Access.to(url, api_key=key, ca_file=config.ca_file, verify_tls=config.verify_tls) for url in urls
        )
        self._session: aiohttp.ClientSession | None = None
        self._said: dict[str, frozenset[Metric]] = {}

    async def collect(self) -> Sequence[Item]:
        if not self._access:
            now = self._clock.wall_ns()
            return [Sample.unknown(m, State.ABSENT, now, why="no target is configured") for m in METRICS]
        if self._session is None:
            self._session = self._access[0].session()
        answers = await asyncio.gather(*(self._scrape(self._session, access) for access in self._access))
        return [item for items in answers for item in items]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _scrape(self, session: aiohttp.ClientSession, access: Access) -> list[Item]:
        replica = f"{access.host}:{access.port}"
        found = await self._ask(session, access)
        now = self._clock.wall_ns()
        if isinstance(found, _Trouble):
            # after a restart the server may be another version: say again what it lacks
            state = State.LOST if replica in self._said and found.state is State.ABSENT else found.state
            tags = labels(replica=replica)
            had = set(METRICS) - self._said.get(replica, frozenset())
            return [Sample.unknown(metric, state, now, tags, found.why) for metric in METRICS if metric in had]
        samples, missing = translate(found, replica, now)
        items: list[Item] = [*samples]
        if self._said.get(replica) != frozenset(missing):
            first = replica not in self._said
            self._said[replica] = frozenset(missing)
            why = "this server does not tell it"
            items += [Sample.unknown(m, State.UNSUPPORTED, now, labels(replica=replica), why) for m in missing]
            if first and missing:
                what = f"{replica} does not tell: {', '.join(m.name for m in missing)}"
                items.append(Event("server.metrics", now, what, Severity.INFO, labels(replica=replica)))
        return items

    async def _ask(self, session: aiohttp.ClientSession, access: Access) -> tuple[Line, ...] | _Trouble:
        try:
            answer = await ask(session, access, "/metrics", timeout_s=self._config.timeout)
        except TargetError as error:
            late = "no answer within" in error.message
            return _Trouble(State.TIMEOUT if late else State.ABSENT, str(error))
        if answer.status in (401, 403):
            return _Trouble(State.NO_PERMISSION, "/metrics wants the API key; set api_key_env of this collector")
        if answer.status != 200:
            return _Trouble(State.UNSUPPORTED, f"/metrics answered {answer.status}: {answer.complaint()}; {_OFF}")
        try:
            lines = parse_exposition(answer.body.decode("utf-8", errors="replace"))
        except ValueError as error:
            return _Trouble(State.UNSUPPORTED, f"/metrics is not Prometheus text: {error}")
        return lines or _Trouble(State.UNSUPPORTED, "/metrics holds no metric of vLLM, SGLang or llama.cpp")


def build(config: Config, context: CollectorContext) -> ServerMetricsCollector:
    return ServerMetricsCollector(config, context)
