"""guidellm and NVIDIA AIPerf, each in an environment of its own under bench/out/venvs, made on first use; and a loop
like that of vllm bench serve, which is own code and needs none.

The two want a Hugging Face tokenizer: a word-level one is made in the same environment, because nothing is downloaded
but the packages. What can't be installed or does not run is skipped with its reason.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.load.harness import OUT, KnownServer, Measured

_INSTALL_S = 1500
_MARGIN_S = 120
_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = ["<unk>", "<s>", "</s>"] + [f"w{n}" for n in range(2000)] + [chr(c) for c in range(33, 127)]
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(dict.fromkeys(words))}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
fast.save_pretrained(sys.argv[1])
"""


class Unavailable(Exception):
    """The peer can't be installed or run here; the message says why."""


@functools.cache
def _environment(package: str) -> Path:
    """The folder of programs of the peer's environment. Raises Unavailable."""
    root = OUT / "venvs" / package
    program = root / "bin" / package
    if not program.exists():
        venv.create(root, with_pip=True)
        command = [str(root / "bin" / "pip"), "install", "-q", package]
        done = _run(command, _INSTALL_S)
        if done.returncode or not program.exists():
            raise Unavailable(f"{package} can't be installed: {_last(done.stderr)}")
    tokenizer = root / "tokenizer"
    if not tokenizer.exists():
        done = _run([str(root / "bin" / "python"), "-c", _TOKENIZER, str(tokenizer)], 300)
        if done.returncode:
            raise Unavailable(f"no tokenizer for {package}: {_last(done.stderr)}")
    return root


def guidellm(server: KnownServer, streams: int, seconds: float, core: int) -> Measured:
    """Its ITL is one mean a request, which hides stalls."""
    root = _environment("guidellm")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [
            *_pinned(core), str(root / "bin" / "guidellm"), "run",
            "--backend", f"kind=openai_http,target={server.url},model=known-timing",
            "--profile", f"kind=concurrent,streams={streams}",
            "--constraint", f"kind=max_duration,seconds={int(seconds + 2)}",
            "--tokenizer", f"kind=hf_auto,model={root / 'tokenizer'}",
            "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=64",
            "--output", f"kind=json,path={out}", "--disable-console",
        ]  # fmt: skip
        report = _report(command, seconds, out)
    metrics = report["benchmarks"][0]["metrics"]

    def ok(name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = metrics[name]["successful"]
        return found

    return Measured(
        "guidellm", streams,
        _percentiles(ok("time_to_first_token_ms")["percentiles"]),
        _percentiles(ok("inter_token_latency_ms")["percentiles"]),
        _number(ok("output_tokens_per_second").get("mean")),
        _number(ok("requests_per_second").get("mean")),
        _number(ok("request_concurrency").get("mean")),
        None,
    )  # fmt: skip


def aiperf(server: KnownServer, streams: int, seconds: float, core: int) -> Measured:
    """Its ITL is one mean a request, which hides stalls."""
    root = _environment("aiperf")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *_pinned(core), str(root / "bin" / "aiperf"), "profile", "--model", "known-timing", "--url", server.url,
            "--endpoint-type", "chat", "--streaming", "--concurrency", str(streams),
            "--benchmark-duration", str(int(seconds + 2)), "--tokenizer", str(root / "tokenizer"),
            "--synthetic-input-tokens-mean", "16", "--output-tokens-mean", "64", "--workers-max", "1",
            "--artifact-dir", folder, "--ui-type", "none",
        ]  # fmt: skip
        report = _report(command, seconds, Path(folder) / "profile_export_aiperf.json")
    return Measured(
        "aiperf", streams,
        _percentiles(report["time_to_first_token"]),
        _percentiles(report["inter_token_latency"]),
        _number(report.get("output_token_throughput", {}).get("avg")),
        _number(report.get("request_throughput", {}).get("avg")),
        _number(report.get("effective_concurrency", {}).get("avg")),
        None,
    )  # fmt: skip


def vllm_like(server: KnownServer, streams: int, seconds: float, core: int) -> Measured:
    """A loop like that of vllm bench serve, in this environment: bench/load/vllm_like.py, which is own code."""
    command = [
        *_pinned(core), sys.executable, "-m", "bench.load.vllm_like", "--url", server.url, "--streams", str(streams),
        "--seconds", str(seconds + 2),
    ]  # fmt: skip
    try:
        done = _run(command, seconds + _MARGIN_S)
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the vllm-bench-like loop did not end in {seconds + _MARGIN_S:.0f} s") from None
    except ValueError:
        raise Unavailable(f"the vllm-bench-like loop left no report: {_last(done.stderr)}") from None
    return Measured(
        "vllm-bench-like (own)", streams, report["ttft_ms"], report["itl_ms"], report["tokens_per_s"],
        report["requests_per_s"], report["concurrency"], report["rss_mib"],
        f"{report['failed']} requests failed" if report["failed"] else "",
    )  # fmt: skip


def _report(command: Sequence[str], seconds: float, path: Path) -> dict[str, Any]:
    try:
        done = _run(command, seconds + _MARGIN_S)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{Path(command[3]).name} did not end in {seconds + _MARGIN_S:.0f} s") from None
    if not path.exists():
        raise Unavailable(f"{' '.join(command[3:5])} left no report: {_last(done.stderr or done.stdout)}")
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def _run(command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    print(f"$ {Path(command[0]).name} {Path(command[3]).name} ...", file=sys.stderr, flush=True)
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def _pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if shutil.which("taskset") else ["env", "--", "env"]


def _percentiles(found: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: _number(found.get(name)) for name in ("p50", "p95", "p99")}


def _number(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1][:300] if lines else "no word of why"
