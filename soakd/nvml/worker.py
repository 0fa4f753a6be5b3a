"""One child process per GPU: answers requests on stdin with lines of JSON on stdout, and ends when stdin closes.

Requests: ``{"id": 1, "do": "fast" | "slow" | "probe" | "where"}``. Replies:
``{"id": 1, "units": {"": {key: [code, value]}}}`` (``fast``, ``slow``), ``{"id", "probe": {key: [code, us]}}``,
``{"id", "where": call}`` or ``{"id", "failed": code, "why": text}``. Without an id: ``{"card": {...}}`` when the
handles are there or ``{"failed": code, "why": text}`` when they can't be had, ``{"event": [kind, data, at_ns]}``,
``{"events": code, "why": text}`` when NVML gives no events.

``python -m soakd.nvml.worker list`` prints the cards and ends; ``... serve UUID`` serves one of them.
A module of another backend calls ``main(backend, argv)`` in the same way.

Only the reading thread looks at stdin, so that a worker whose NVML call hangs still ends when its parent does, and
can say where it hangs. Imports are kept to what a worker needs: eight of them run on a full server.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from queue import Full, Queue
from typing import BinaryIO

from soakd.nvml.device import NEVER_SUPPORTED, TIERS, Answer, Backend, CardId, Device, DeviceError

_EVENT_WAIT_S = 1.0
_BACKOFF_FIRST_S = 1.0
_BACKOFF_LAST_S = 60.0
_MAX_QUEUED = 8


def card_record(card: CardId) -> dict[str, object]:
    """The JSON form of a card's identity; ``card_from`` of the pool reads it."""
    return {**card._asdict(), "migs": list(card.migs)}


class Worker:
    """Serves one device. ``run`` returns when stdin ends."""

    def __init__(self, device: Device, source: BinaryIO, sink: BinaryIO) -> None:
        self._device = device
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self._requests: Queue[dict[str, object]] = Queue(_MAX_QUEUED)
        self._held = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Read requests until stdin ends. The device is asked on one thread, events are awaited on another."""
        for target in (self._ask, self._listen):
            threading.Thread(target=target, daemon=True).start()
        while line := self._source.readline():
            try:
                request = json.loads(line)
            except ValueError:
                continue
            if not isinstance(request, dict):
                continue
            if request.get("do") == "where":
                self._write({"id": request.get("id"), "where": self._device.current()})
                continue
            try:
                self._requests.put_nowait(request)
            except Full:
                self._write({"id": request.get("id"), "failed": -2, "why": "too many requests wait"})
        self._stopping.set()

    def _ask(self) -> None:
        self._acquire()
        while True:
            request = self._requests.get()
            number, verb = request.get("id"), request.get("do")
            try:
                if verb == "probe":
                    probed = {key: [a.code, a.us] for key, a in self._device.probe().items()}
                    self._write({"id": number, "probe": probed})
                elif verb in TIERS:
                    units = self._device.read(str(verb))
                    self._write({"id": number, "units": {unit: _plain(answers) for unit, answers in units.items()}})
                else:
                    self._write({"id": number, "failed": -2, "why": f"unknown request {verb!r}"})
            except DeviceError as error:
                self._write({"id": number, "failed": error.code, "why": error.what})

    def _acquire(self) -> None:
        try:
            card = self._device.acquire()
        except DeviceError as error:
            self._write({"failed": error.code, "why": error.what})
            return
        self._held.set()
        self._write({"card": card_record(card)})

    def _listen(self) -> None:
        backoff = _BACKOFF_FIRST_S
        while not self._stopping.is_set():
            self._held.wait()
            try:
                event = self._device.wait_event(_EVENT_WAIT_S)
            except DeviceError as error:
                self._write({"events": error.code, "why": error.what})
                if error.code in NEVER_SUPPORTED:
                    return
                # a lost card makes the wait return at once: without this pause it would be a busy loop
                self._stopping.wait(backoff)
                backoff = min(backoff * 2, _BACKOFF_LAST_S)
                continue
            backoff = _BACKOFF_FIRST_S
            if event is not None:
                self._write({"event": [event.kind, event.data, event.at_ns or time.time_ns()]})

    def _write(self, message: dict[str, object]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            try:
                self._sink.write(line)
                self._sink.flush()
            except (BrokenPipeError, ValueError):
                os._exit(0)


def _plain(answers: object) -> dict[str, list[object]]:
    assert isinstance(answers, dict)
    return {key: [answer.code, answer.value] for key, answer in answers.items() if isinstance(answer, Answer)}


def _end_on_error(failure: threading.ExceptHookArgs) -> None:
    """A thread that dies must end the process: a worker that is half alive would look like a hung card."""
    sys.stderr.write(f"{failure.exc_type.__name__}: {failure.exc_value}\n")
    os._exit(1)


def serve(device: Device) -> None:
    """Serve a device on stdin and stdout until stdin closes, then end the process, hung call or not."""
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not break the protocol
    threading.excepthook = _end_on_error
    Worker(device, sys.stdin.buffer, sink).run()
    os._exit(0)


def main(backend: Backend, argv: Sequence[str]) -> int:
    """``list`` or ``serve UUID``. Exit code 0, or 2 for wrong arguments."""
    if list(argv) == ["list"]:
        try:
            found: dict[str, object] = {"cards": [card_record(card) for card in backend.list_cards()]}
        except DeviceError as error:
            found = {"failed": error.code, "why": error.what}
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    if len(argv) == 2 and argv[0] == "serve":
        serve(backend.open(argv[1]))
    sys.stderr.write("usage: list | serve UUID\n")
    return 2


if __name__ == "__main__":
    from soakd.nvml.nvml_device import NvmlBackend

    sys.exit(main(NvmlBackend(), sys.argv[1:]))
