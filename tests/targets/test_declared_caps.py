from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.targets.declared_caps import DeclaredCaps, context_per_request, declared_caps

GIB = 2**30


def caps(kind: str, line: str) -> DeclaredCaps:
    return declared_caps(kind, line.split())


def test_llamacpp() -> None:
    found = caps(
        "llamacpp", "llama-server -m q.gguf -c 32768 -np 4 --cache-ram 2048 --ctx-checkpoints 8 -md draft.gguf"
    )
    assert found == DeclaredCaps(
        cache_ram_bytes=2 * GIB, context_checkpoints=8, context_tokens=32768, slots=4, speculative=True
    )
    assert context_per_request(found, "llamacpp") == 8192


def test_llamacpps_prompt_cache_has_a_default_that_looks_like_a_leak() -> None:
    found = caps("llamacpp", "llama-server -m q.gguf")
    assert found.cache_ram_bytes == 8 * GIB
    assert "cache_ram_bytes=8589934592 (default)" in found.stated()
    assert caps("llamacpp", "llama-server -cram -1").cache_ram_bytes == -1
    assert caps("llamacpp", "llama-server -cram 0").cache_ram_bytes == 0


def test_vllm() -> None:
    found = caps(
        "vllm",
        "vllm serve Qwen/Q --gpu-memory-utilization 0.92 --max-num-seqs=256 --max-model-len 128k "
        "--tensor_parallel_size 4 --mm-processor-cache-gb 4 --swap-space 2.5 "
        "--no-enable-prefix-caching --kv-offloading-size 16",
    )
    assert found == DeclaredCaps(
        gpu_memory_ratio=0.92, slots=256, context_tokens=128_000, tensor_parallel=4, multimodal_cache_bytes=4 * GIB,
        swap_space_bytes=int(2.5 * GIB), prefix_caching=False, kv_offload_bytes=16 * GIB,
    )  # fmt: skip
    assert context_per_request(found, "vllm") == 128_000


def test_sglang() -> None:
    found = caps("sglang", "python -m sglang.launch_server --tp 8 --mem-fraction-static 0.85 --context-length 32K")
    assert (found.tensor_parallel, found.gpu_memory_ratio, found.context_tokens) == (8, 0.85, 32768)


@pytest.mark.parametrize(
    "line", ["vllm --max-num-seqs", "vllm --max-num-seqs auto", "vllm --swap-space=", "vllm -c inf"]
)
def test_a_value_that_can_not_be_read_counts_as_not_given(line: str) -> None:
    assert caps("vllm", line) == DeclaredCaps()


def test_nothing_is_known_of_a_remote_server() -> None:
    assert declared_caps("llamacpp", ()) == DeclaredCaps()


@given(st.lists(st.text() | st.sampled_from(["--cache-ram", "-c", "-np", "--swap-space=", "--max-model-len"])))
def test_any_command_line_can_be_read(command: list[str]) -> None:
    declared_caps("llamacpp", command).stated()
