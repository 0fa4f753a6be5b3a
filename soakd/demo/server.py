"""llama.cpp's real HTTP server in this process: ``python -m soakd.demo.server --model F [--port 0] ...``.

Prints one JSON line when it answers: ``{"url", "port", "pid"}``, or ``{"error", "hint"}`` and ends with exit code 2.
Ends when its stdin closes, on SIGTERM, and (Linux) when the process that started it dies. The log goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soakd.demo.lifeline import die_with_parent
from soakd.demo.tiny_qwen import Shape, cached_model
from soakd.errors import SoakdError

MODEL_NAME = "tiny-qwen3"
INSTALL_HINT = "install the demo extra: pip install 'soakd[demo]'"
_ANSWER_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """``context`` is in tokens per slot. ``model`` None means the generated one, kept in ``cache``."""

    cache: Path
    model: Path | None = None
    port: int = 0
    slots: int = 4
    context: int = 4096
    cache_ram_mib: int = 0
    verbosity: int = 1


def start(options: ServerOptions) -> tuple[Any, str]:
    """The server object, which must be kept, and its URL. Raises SoakdError."""
    try:
        import xllamacpp
    except ImportError as error:
        raise SoakdError(f"the demo server can't be loaded: {error}", hint=INSTALL_HINT) from None
    model = options.model
    if model is None:
        try:
            model = cached_model(options.cache, Shape(context=max(options.context, Shape().context)))
        except ImportError as error:
            raise SoakdError(f"the demo model can't be made: {error}", hint=INSTALL_HINT) from None
    if not model.is_file():
        raise SoakdError(f"{model}: no such model file", hint="give a GGUF file")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {MODEL_NAME} if not isinstance(params.model_alias, str) else MODEL_NAME
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots  # llama.cpp shares it between the slots
    params.n_ctx_checkpoints = 0
    params.cache_ram_mib = options.cache_ram_mib  # its default fills 8 GiB in a straight line: a leak, to any statistic
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.ui = False
    params.verbosity = options.verbosity
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError, OSError) as error:
        raise SoakdError(f"llama.cpp's server did not start: {error}", hint="see its log") from None
    return server, str(server.listening_address)


def wait_until_healthy(url: str) -> None:
    """Return when /health answers 200. Raises SoakdError after 20 s."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)  # the model is still loading; the server has no signal for 'ready'
    raise SoakdError(f"the demo server at {url} does not answer /health", hint="see its log")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soakd.demo.server", description="llama.cpp's server, for a demo")
    parser.add_argument("--model", type=Path, help="a GGUF file; without it a tiny random Qwen3 is made in --cache")
    parser.add_argument("--cache", type=Path, default=Path("."), help="directory for the generated model")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--slots", type=int, default=4, help="requests served at a time")
    parser.add_argument("--context", type=int, default=4096, help="tokens per slot")
    parser.add_argument("--cache-ram-mib", type=int, default=0, help="cap of llama.cpp's prompt cache")
    parser.add_argument("--verbosity", type=int, default=1, help="llama.cpp's log level; 3 is a line per request")
    parser.add_argument("--parent", type=int, default=0, help="process that this one must not outlive")
    args = vars(parser.parse_args(argv))
    die_with_parent(args.pop("parent"))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp logs to stdout as well
    try:
        _server, url = start(ServerOptions(**args))
        wait_until_healthy(url)
    except SoakdError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}), file=answers, flush=True)
        return error.exit_code
    print(json.dumps({"url": url, "port": int(url.rsplit(":", 1)[1]), "pid": os.getpid()}), file=answers, flush=True)
    while os.read(0, 4096):
        pass
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # llama.cpp's threads would hold up a normal exit while requests run
