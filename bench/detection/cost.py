"""What judging costs: one evaluation of 7,200 readings, and 50 series fed once a second to monitors (shares of a core).

python -m bench.detection.cost
"""

from __future__ import annotations

import time

import numpy as np

from bench.detection.families import LEAKS, NULLS
from soakd.analysis.judge import judge_family, judge_series
from soakd.analysis.online import MonitorConfig, SeriesMonitor

SERIES = 50
_NAMES = ("flat quiet", "flat ar4", "warm-up ar4", "step ar4", "sawtooth ar4", "one-sided", "load ramp", "pools 2 h",
          "0.087 %/h ar4", "staircase")  # fmt: skip


def main() -> None:
    makers = {**NULLS, **LEAKS}
    questions = [makers[_NAMES[i % len(_NAMES)]](np.random.default_rng(i)).question for i in range(SERIES)]
    judge_series(questions[0])
    print("| evaluation of 7,200 readings | median ms | worst ms |\n| --- | --- | --- |")
    for name, question in zip(_NAMES, questions, strict=False):
        took = []
        for _ in range(5):
            began = time.process_time()
            judge_series(question)
            took.append(1000 * (time.process_time() - began))
        print(f"| {name} | {np.median(took):.1f} | {max(took):.1f} |")
    began = time.process_time()
    judge_family(questions)
    print(f"\na family of {SERIES}: {1000 * (time.process_time() - began):.0f} ms")

    config = MonitorConfig(page=2.0, unit="MiB", wanted_span=7200.0, family=SERIES)
    monitors = [SeriesMonitor(config) for _ in questions]
    adding = looking = 0.0
    looks = 0
    for second in range(7200):
        began = time.process_time()
        for monitor, q in zip(monitors, questions, strict=True):
            load = None if q.load is None else float(q.load[second])
            monitor.add(float(second), float(q.y[second]), load)
        middle = time.process_time()
        looks += sum(monitor.look(float(second)) is not None for monitor in monitors)
        adding += middle - began
        looking += time.process_time() - middle
    state = sum(len(m.dump()) for m in monitors) / SERIES
    print(f"{SERIES} series at 1 Hz for 2 h: adding {100 * adding / 7200:.2f} % of a core, "
          f"{looks} looks {100 * looking / 7200:.2f} %; {state / 1024:.0f} KiB of state a series")  # fmt: skip
    print(
        f"judging all {SERIES} each second instead would take {100 * looking / max(looks, 1) * SERIES:.0f} % of a core"
    )


if __name__ == "__main__":
    main()
