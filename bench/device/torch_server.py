"""A small streaming server of a random-weight Qwen3 on a real GPU, with a leak and holes of known size.

    SOAKD_PROBE=DIR python3 bench/device/torch_server.py --port 8000 --truth truth.csv

It speaks the OpenAI chat protocol and vLLM's metric names, batches what waits, and decodes with a KV cache. From
``--leak-from`` on it keeps one small tensor every two seconds (``--leak-bytes-per-s``); at ``--holes-at`` it allocates
blocks and frees every second one. The truth is written once a second.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import torch
from aiohttp import web
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

import soakd.probe.auto  # noqa: F401  # the allocator probe, as any torch server loads it

VOCAB = 8192
_BATCH = 16


@dataclass(slots=True)
class Request:
    """One request: its prompt as token ids, and where its tokens go."""

    prompt: list[int]
    max_tokens: int
    loop: asyncio.AbstractEventLoop
    out: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)

    def emit(self, token: int | None) -> None:
        self.loop.call_soon_threadsafe(self.out.put_nowait, token)


@dataclass(slots=True)
class Counts:
    running: int = 0
    prompt_tokens: int = 0
    generated: int = 0
    done: int = 0


class Engine(threading.Thread):
    """Takes what waits as one batch, prefills it and decodes until every request has its tokens."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="engine")
        torch.backends.cuda.enable_cudnn_sdp(False)  # its plan cache grows with every KV length (measured on H200)
        torch.manual_seed(1)
        config = Qwen3Config(
            vocab_size=VOCAB,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=64,
            max_position_embeddings=8192,
        )
        self.model = Qwen3ForCausalLM(config).to("cuda", torch.bfloat16).eval()
        self.waiting: queue.Queue[Request] = queue.Queue()
        self.counts = Counts()

    def run(self) -> None:
        while True:
            batch = [self.waiting.get()]
            while len(batch) < _BATCH and not self.waiting.empty():
                batch.append(self.waiting.get())
            with torch.inference_mode():
                self._serve(batch)

    def _serve(self, batch: list[Request]) -> None:
        self.counts.running = len(batch)
        longest = max(len(r.prompt) for r in batch)
        ids = torch.tensor([[0] * (longest - len(r.prompt)) + r.prompt for r in batch], device="cuda")
        mask = torch.tensor([[0] * (longest - len(r.prompt)) + [1] * len(r.prompt) for r in batch], device="cuda")
        self.counts.prompt_tokens += sum(len(r.prompt) for r in batch)
        cache = DynamicCache()
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        for step in range(max(r.max_tokens for r in batch)):
            out = self.model(input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache)
            ids = out.logits[:, -1:].argmax(-1)
            for request, token in zip(batch, ids[:, 0].tolist(), strict=True):
                if step < request.max_tokens:
                    self.counts.generated += 1
                    request.emit(token)
                    if step + 1 == request.max_tokens:
                        request.emit(None)
                        self.counts.done += 1
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
            position = position[:, -1:] + 1
        self.counts.running = 0


def tokens_of(text: str) -> list[int]:
    """Four bytes a token: there is no tokenizer, and none is needed for load."""
    raw = text.encode()
    return [int.from_bytes(raw[i : i + 4], "big") % VOCAB for i in range(0, len(raw), 4)] or [1]


class Server:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def models(self, _request: web.Request) -> web.Response:
        entry = {"id": "random-qwen3", "object": "model", "owned_by": "soakd-bench", "max_model_len": 8192}
        return web.json_response({"object": "list", "data": [entry]})

    async def health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def metrics(self, _request: web.Request) -> web.Response:
        counts = self._engine.counts
        lines = (
            f"vllm:num_requests_running {counts.running}",
            f"vllm:num_requests_waiting {self._engine.waiting.qsize()}",
            f"vllm:prompt_tokens_total {counts.prompt_tokens}",
            f"vllm:generation_tokens_total {counts.generated}",
            f'vllm:request_success_total{{finished_reason="length"}} {counts.done}',
        )
        return web.Response(text="\n".join(lines) + "\n")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        prompt = tokens_of("".join(m["content"] or "" for m in body["messages"]))[:7000]
        work = Request(prompt, int(body.get("max_tokens") or 64), asyncio.get_running_loop())
        self._engine.waiting.put(work)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": work.max_tokens}
        if not body.get("stream"):
            words = []
            while (token := await work.out.get()) is not None:
                words.append(f" w{token}")
            message = {"role": "assistant", "content": "".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            return web.json_response({"choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._event(response, {"role": "assistant", "content": ""})
        while (token := await work.out.get()) is not None:
            await self._event(response, {"content": f" w{token}"})
        await self._event(response, {}, "length")
        last = orjson.dumps({"choices": [], "usage": usage})
        await response.write(b"data: " + last + b"\n\ndata: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _event(self, response: web.StreamResponse, delta: dict[str, str], reason: str | None = None) -> None:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        await response.write(b"data: " + orjson.dumps(chunk) + b"\n\n")


def keep_truth(arguments: argparse.Namespace, engine: Engine) -> None:
    """Leaks and makes holes as told, and writes what torch itself says, once a second."""
    kept: list[torch.Tensor] = []
    holes: list[torch.Tensor] = []
    began, size = time.monotonic(), arguments.leak_bytes_per_s * 2 // 4
    with arguments.truth.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("unix_s", "elapsed_s", "leak_bytes", "hole_bytes", "allocated", "reserved", "inactive_split",
                      "small_allocated", "generated"))  # fmt: skip
        for second in range(10**9):
            elapsed = time.monotonic() - began
            if elapsed >= arguments.leak_from and second % 2 == 0:
                kept.append(torch.zeros(size, dtype=torch.float32, device="cuda"))
            if not holes and elapsed >= arguments.holes_at:
                blocks = [torch.empty(2**20, dtype=torch.float32, device="cuda") for _ in range(400)]
                holes = blocks[::2]
                del blocks
            stats = torch.cuda.memory_stats()
            out.writerow((
                f"{time.time():.3f}", f"{elapsed:.3f}", sum(t.nbytes for t in kept), sum(t.nbytes for t in holes),
                stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"],
                stats["inactive_split_bytes.all.current"], stats["allocated_bytes.small_pool.current"],
                engine.counts.generated,
            ))  # fmt: skip
            file.flush()
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--leak-from", type=float, default=120.0, help="second from which it leaks")
    parser.add_argument("--leak-bytes-per-s", type=int, default=128 * 1024)
    parser.add_argument("--holes-at", type=float, default=60.0, help="second at which the holes are made")
    parser.add_argument("--truth", type=Path, default=Path("truth.csv"))
    arguments = parser.parse_args()
    engine = Engine()
    engine.start()
    threading.Thread(target=keep_truth, args=(arguments, engine), daemon=True).start()
    server = Server(engine)
    app = web.Application(client_max_size=2**24)
    app.add_routes([web.get("/v1/models", server.models), web.get("/health", server.health),
                    web.get("/metrics", server.metrics), web.post("/v1/chat/completions", server.chat)])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=arguments.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
