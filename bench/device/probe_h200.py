"""A controlled load for a real GPU, with the allocator probe inside: known leak, known holes, steady matmul steps.

Needs torch with CUDA. ``SOAKD_PROBE=/tmp/probe python bench/device/probe_h200.py --seconds 120 --truth truth.csv``.
One row a second goes to the truth file: what the program itself knows it holds, next to what torch and the driver say.
Without SOAKD_PROBE the same program runs without the probe; the last line on stdout gives seconds per step for both.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import soakd.probe.auto  # noqa: F401  # starts the probe when SOAKD_PROBE is set

_LEAK_PIECE = 64 * 1024


@dataclass(frozen=True)
class Row:
    """One second. ``hole_bytes`` are the freed blocks between kept ones; ``steps`` are counted from the start."""

    wall_ns: int
    t_s: float
    steps: int
    leaked_bytes: int
    hole_bytes: int
    torch_allocated_bytes: int
    torch_reserved_bytes: int
    torch_inactive_split_bytes: int
    driver_used_bytes: int


@dataclass
class Load:
    """What is held on purpose."""

    leaked: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    leaked_bytes: int = 0
    hole_bytes: int = 0

    def leak_up_to(self, wanted: int) -> None:
        while self.leaked_bytes + _LEAK_PIECE <= wanted:
            self.leaked.append(torch.ones(_LEAK_PIECE, dtype=torch.uint8, device="cuda"))
            self.leaked_bytes += _LEAK_PIECE

    def make_holes(self, blocks: int, block_bytes: int) -> None:
        """Allocate blocks back to back and free every second one; the segments stay, pinned by the neighbours.

        Blocks of up to 1 MiB are packed into 2 MiB segments, blocks of 1 to 10 MiB into 20 MiB segments: only a size
        that divides the segment leaves no remainder, which would count as inactive split too.
        """
        made = [torch.empty(block_bytes, dtype=torch.uint8, device="cuda") for _ in range(blocks)]
        self.kept = made[::2]
        self.hole_bytes = len(made[1::2]) * block_bytes


def churn(step: int) -> None:
    """Allocate and free: sizes vary from step to step, as prompts do."""
    for n in range(4):
        size = 2**20 * (1 + (step * 7 + n * 13) % 24)
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        del block


def row_of(load: Load, started: float, steps: int) -> Row:
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return Row(
        time.time_ns(), time.monotonic() - started, steps, load.leaked_bytes, load.hole_bytes,
        stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"],
        stats["inactive_split_bytes.all.current"], total - free,
    )  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="whole run, at most 3600")
    parser.add_argument("--leak-from", type=float, default=30.0, help="second from which the leak grows")
    parser.add_argument("--leak-bytes-per-s", type=int, default=128 * 1024)
    parser.add_argument("--holes-at", type=float, default=15.0, help="second at which the holes are made")
    parser.add_argument("--hole-blocks", type=int, default=400)
    parser.add_argument("--hole-bytes", type=int, default=4 * 2**20)
    parser.add_argument("--matrix", type=int, default=4096)
    parser.add_argument("--no-churn", action="store_true", help="steady steps only, to measure the probe's cost")
    parser.add_argument("--truth", type=Path, default=Path("truth.csv"))
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    seconds = min(asked.seconds, 3600.0)
    left = torch.randn(asked.matrix, asked.matrix, device="cuda", dtype=torch.float16)
    out = torch.empty_like(left)
    load, times, steps = Load(), [], 0
    started = time.monotonic()
    next_row, holes_made = started, False
    with asked.truth.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__))
        writer.writeheader()
        while (now := time.monotonic()) - started < seconds:
            t = now - started
            if not holes_made and t >= asked.holes_at and asked.hole_blocks:
                load.make_holes(asked.hole_blocks, asked.hole_bytes)
                holes_made = True
            if t > asked.leak_from:
                load.leak_up_to(int((t - asked.leak_from) * asked.leak_bytes_per_s))
            if not asked.no_churn:
                churn(steps)
            begun = time.perf_counter()
            for _ in range(8):
                torch.matmul(left, left, out=out)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
            steps += 1
            if now >= next_row:
                writer.writerow(asdict(row_of(load, started, steps)))
                file.flush()
                next_row += 1.0
            if len(times) > 200_000:
                del times[:100_000]
    settled = times[len(times) // 10 :]
    print(json.dumps({
        "steps": steps, "step_mean_s": statistics.fmean(settled), "step_median_s": statistics.median(settled),
        "leaked_bytes": load.leaked_bytes, "hole_bytes": load.hole_bytes, "torch": torch.__version__,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
