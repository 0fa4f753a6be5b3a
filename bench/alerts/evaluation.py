"""Cost of the shipped rules over a simulated soak (SIMULATED): ``python bench/alerts/evaluation.py [HOURS] [STEP_S]``.

Prints ratios within one run: time spent in rules against the time that passed, against the collectors' own time, the
longest single step, and what stays in memory for 1,000 alerts more.
"""

from __future__ import annotations

import asyncio
import sys
import time
import tracemalloc

from soakd.alerting.evaluation import Evaluation
from soakd.alerting.outbox import Outbox
from soakd.alerting.rule_files import load_rules, rule_files
from soakd.metrics import catalogue
from soakd.model import Sample, labels
from tests.support.simulated_soak import START_NS, soak


async def day(hours: float, step_s: float) -> None:
    evaluation = Evaluation(load_rules(rule_files(()), catalogue().by_name), ())
    in_rules, longest, steps, changed, began = 0.0, 0.0, 0, 0, time.perf_counter()
    async for now_ns, items in soak("healthy", hours * 3600, step_s, cards=4):
        before = time.perf_counter()
        changed += len([*evaluation.step(items, now_ns), *evaluation.tick(now_ns)])
        took = time.perf_counter() - before
        in_rules, longest, steps = in_rules + took, max(longest, took), steps + 1
    total = time.perf_counter() - began
    share = in_rules / (total - in_rules)
    print(f"{hours:g} h of 4 cards every {step_s:g} s: {steps} steps, {changed} changes of alerts")
    print(f"rules: {1e3 * in_rules / steps:.2f} ms a step, longest {1e3 * longest:.0f} ms")
    print(f"rules: {100 * in_rules / (steps * step_s):.3f} % of one core, {share:.2f} of the collectors' own time")


def flood() -> None:
    hot = catalogue().by_name["gpu_temperature_celsius"]
    evaluation = Evaluation(load_rules(rule_files(()), catalogue().by_name), labels(host="h"))
    box = Outbox(60_000_000_000)
    tracemalloc.start()
    for second in range(700):
        now_ns = START_NS + second * 10**9
        items = [Sample.ok(hot, 90, now_ns, labels(gpu=f"G{i}", bdf=f"b{i}", sensor="core")) for i in range(1000)]
        before = time.perf_counter()
        for alert in evaluation.step(items, now_ns):
            if alert.fired_ns is not None:
                box.put(alert)
        took = time.perf_counter() - before
    size, _ = tracemalloc.get_traced_memory()
    print(f"1,000 cards: {len(box)} alerts waiting, {size / 1000 / 1024:.1f} KiB each with their rules' state; "
          f"the step in which they stand takes {1e3 * took:.0f} ms")  # fmt: skip


if __name__ == "__main__":
    asyncio.run(day(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0, float(sys.argv[2]) if len(sys.argv) > 2 else 5.0))
    flood()
