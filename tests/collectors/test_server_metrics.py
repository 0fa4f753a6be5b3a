from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from soakd.collectors.server_metrics import METRICS, Config, build, parse_exposition, translate
from soakd.demo.launch import DemoServer
from soakd.model import Sample, State, TargetInfo
from tests.support.proc_tree import HandClock, context, events, roots, samples, states, values

VLLM_V1 = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 6.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="qwen"} 3.0
vllm:num_preemptions_created{engine="0",model_name="qwen"} 1.7e+09
vllm:prompt_tokens_total{engine="0",model_name="qwen"} 1000.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 500.0
vllm:prefix_cache_queries_total{engine="0",model_name="qwen"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="qwen"} 600.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="qwen"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="qwen"} 240.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 77.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="qwen"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="qwen"} 4.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="qwen"} 1.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 10.0
"""
VLLM_V0 = """vllm:num_requests_running{model_name="m"} 1
vllm:num_requests_swapped{model_name="m"} 0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1
"""
SGLANG = """sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 1.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 1000.0
sglang:kv_evictable_tokens{model_name="m",tp_rank="0"} 250.0
sglang:prompt_tokens_total{model_name="m"} 10.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 3.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 1.0
sglang:generation_tokens_total{model_name="m"} 20.0
sglang:num_requests_total{model_name="m"} 7.0
sglang:num_aborted_requests_total{model_name="m"} 2.0
sglang:num_retracted_reqs{model_name="m"} 0.0
"""
LLAMACPP = """llamacpp:prompt_tokens_total 11
llamacpp:prompt_tokens_cached_total 5
llamacpp:tokens_predicted_total 16
llamacpp:n_decode_total 16
llamacpp:requests_processing 3
llamacpp:requests_deferred 1
"""


def common(text: str) -> list[Sample]:
    return translate(parse_exposition(text), "r", 1)[0]


def test_vllm_v1() -> None:
    items = common(VLLM_V1)
    wanted = {
        "server_requests_running": 6, "server_requests_waiting": 2, "server_kv_cache_usage_ratio": 0.25,
        "server_preemptions_total": 3, "server_prompt_tokens_total": 1000, "server_generated_tokens_total": 500,
        "server_prefix_cache_queries_total": 1000, "server_prefix_cache_hits_total": 600,
        "server_spec_draft_tokens_total": 300, "server_spec_accepted_tokens_total": 240,
        "server_requests_aborted_total": 1, "server_kv_cache_capacity_tokens": 1600,
    }  # fmt: skip
    assert {name: values(items, name) for name in wanted} == {name: [value] for name, value in wanted.items()}
    assert values(items, "server_requests_completed_total", reason="length") == [4]
    assert values(items, "server_kv_cache_waste_bound_ratio") == [pytest.approx(6 * 15 / 1600)]


def test_vllm_v0_has_other_names_and_no_block_count() -> None:
    items = common(VLLM_V0)
    assert values(items, "server_kv_cache_usage_ratio") == [0.5]
    assert not samples(items, "server_kv_cache_capacity_tokens")


def test_sglang_ranks_count_once_and_sources_add_up() -> None:
    items = common(SGLANG)
    assert values(items, "server_requests_running") == [4]
    assert values(items, "server_prefix_cache_hits_total") == [4]
    assert values(items, "server_prefix_cache_queries_total") == [10]
    assert values(items, "server_kv_cache_evictable_ratio") == [0.25]
    assert values(items, "server_requests_completed_total", reason="any") == [7]


def test_llamacpp_counts_cached_prompt_tokens_apart() -> None:
    items = common(LLAMACPP)
    assert values(items, "server_prompt_tokens_total") == [16]
    assert values(items, "server_prefix_cache_hits_total") == [5]
    older = common(LLAMACPP.replace("llamacpp:prompt_tokens_cached_total 5\n", ""))
    assert values(older, "server_prompt_tokens_total") == [11]
    assert not samples(older, "server_prefix_cache_hits_total")


def test_data_parallel_engines_are_replicas() -> None:
    two = VLLM_V1 + VLLM_V1.replace('engine="0"', 'engine="1"').replace(" 6.0", " 9.0")
    items = common(two)
    assert values(items, "server_requests_running", replica="r#0") == [6]
    assert values(items, "server_requests_running", replica="r#1") == [9]


def test_nan_is_not_a_value() -> None:
    assert not common("vllm:kv_cache_usage_perc NaN\n")


@given(st.text(max_size=300))
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    try:
        lines = parse_exposition(text + "\nvllm:num_requests_running" + text)
    except ValueError:
        return
    assert all(not math.isnan(line.value) for line in lines)


@asynccontextmanager
async def serving(*answers: web.Response | str) -> AsyncIterator[str]:
    """A server that gives these answers to /metrics in turn, the last one for ever."""
    left = list(answers)

    async def metrics(request: web.Request) -> web.Response:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, str):
            return web.Response(text=answer)
        return web.Response(status=answer.status, text=answer.text)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_what_a_server_lacks_is_said_once(tmp_path: Path) -> None:
    async with serving(LLAMACPP) as url:
        collector = build(Config(), context(roots(tmp_path), HandClock(), TargetInfo(url, "llamacpp", "m")))
        first, second = await collector.collect(), await collector.collect()
        assert samples(first, "server_preemptions_total")[0].state is State.UNSUPPORTED
        assert "server_preemptions_total" in events(first)[0].what
        assert not samples(second, "server_preemptions_total")
        assert not events(second)
        assert values(second, "server_requests_running") == [3]
        await collector.close()


@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (web.Response(status=501, text='{"error":{"message":"no metrics"}}'), State.UNSUPPORTED, "--metrics"),
        (web.Response(status=401, text=""), State.NO_PERMISSION, "api_key_env"),
        ("<html>", State.UNSUPPORTED, "no metric of"),
        ("vllm:num_requests_running{ 1\n", State.UNSUPPORTED, "not Prometheus text"),
    ],
)
async def test_answers_that_are_no_metrics(tmp_path: Path, answer: web.Response | str, state: State, why: str) -> None:
    async with serving(answer) as url:
        collector = build(Config(), context(roots(tmp_path), HandClock(), TargetInfo(url, "vllm", "m")))
        items = await collector.collect()
        assert states(items) == {state}
        assert why in samples(items, "server_requests_running")[0].why
        await collector.close()


async def test_a_server_that_went_away_is_lost_and_one_never_seen_is_absent(tmp_path: Path) -> None:
    async with serving(VLLM_V1) as url:
        collector = build(Config(), context(roots(tmp_path), HandClock(), TargetInfo(url, "vllm", "m")))
        await collector.collect()
    gone = await collector.collect()
    assert states(gone) == {State.LOST}
    assert not samples(gone, "server_decode_calls_total"), "what it never had is not lost"
    await collector.close()
    other = build(Config(), context(roots(tmp_path), HandClock(), TargetInfo(url, "vllm", "m")))
    assert states(await other.collect()) == {State.ABSENT}
    await other.close()


async def test_replicas_are_asked_side_by_side(tmp_path: Path) -> None:
    async with serving(VLLM_V1) as one, serving(VLLM_V0) as two:
        collector = build(Config(urls=(one, two)), context(roots(tmp_path), HandClock()))
        items = await collector.collect()
        assert values(items, "server_requests_running", replica=one.removeprefix("http://")) == [6]
        assert values(items, "server_requests_running", replica=two.removeprefix("http://")) == [1]
        await collector.close()


async def test_without_a_target_all_is_absent(tmp_path: Path) -> None:
    items = await build(Config(), context(roots(tmp_path), HandClock())).collect()
    assert len(items) == len(METRICS)
    assert states(items) == {State.ABSENT}


@pytest.mark.integration
async def test_llama_cpp_counts_what_it_is_asked(tmp_path: Path) -> None:
    async with DemoServer.start(tmp_path) as server:
        target = TargetInfo(server.url, "llamacpp", server.model)
        collector = build(Config(), context(roots(tmp_path / "r"), HandClock(), target))
        before = await collector.collect()
        body = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 12}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.url}/v1/chat/completions", json=body) as r,
        ):
            usage = (await r.json())["usage"]
        after = await collector.collect()
        for name, key in (
            ("server_generated_tokens_total", "completion_tokens"),
            ("server_prompt_tokens_total", "prompt_tokens"),
        ):
            told = (values(after, name)[0] or 0) - (values(before, name)[0] or 0)
            assert told == usage[key], name
        await collector.close()
