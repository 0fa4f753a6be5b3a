"""How often thermal drift, latency trends and change points are said, where there are some and where there are none.

python -m bench.detection.drift_accuracy --seeds 200
"""

from __future__ import annotations

import argparse
import zlib
from collections import Counter

import numpy as np

from bench.detection.drift import heated, windows
from soakd.analysis.latency import judge_latency
from soakd.analysis.series import Floats
from soakd.analysis.thermal import ThermalQuestion, judge_thermal

CARDS = {
    "none": heated(),
    "power ramp of 40 W": heated(ramp_w=40.0),
    "1 C/h": heated(1.0),
    "2 C/h": heated(2.0),
    "3 C/h": heated(3.0),
    "inlet +2 C, not measured": heated(inlet_c=2.0),
    "inlet +2 C, measured": heated(inlet_c=2.0, measured=True),
    "2 C/h, inlet measured": heated(2.0, inlet_c=2.0, measured=True),
}
LATENCIES = {
    "steady": windows(),
    "steady, 30 min": windows(minutes=30),
    "+10 %/h": windows(0.10),
    "+20 %/h": windows(0.20),
    "step x 1.2": windows(step=1.2),
    "step x 2": windows(step=2.0),
    "step x 2, 30 min": windows(step=2.0, minutes=30),
}


def raw_slope(q: ThermalQuestion) -> bool:
    """What a regression of temperature on time alone says (above 0.5 C/h)."""
    keep = q.x >= q.warmup
    slope: Floats = np.polyfit(q.x[keep], q.temperature[keep], 1)
    return bool(slope[0] * 3600 > q.limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    options = parser.parse_args()
    print("| card | drift % | no drift % | open % | median slope C/h | smallest detectable | OLS says drift % |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, card in CARDS.items():
        asked = [card(np.random.default_rng([zlib.crc32(name.encode()), i])) for i in range(options.seeds)]
        found = [judge_thermal(q) for q in asked]
        said = Counter(j.verdict.value for j in found)
        shares = [f"{100 * said[v] / len(found):.0f}" for v in ("drift", "no_drift", "inconclusive")]
        slope = float(np.median([j.slope or 0.0 for j in found]))
        least = float(np.median([j.smallest_detectable or np.nan for j in found]))
        plain = 100 * float(np.mean([raw_slope(q) for q in asked]))
        print(f"| {name} | {' | '.join(shares)} | {slope:+.2f} | {least:.2f} | {plain:.0f} |", flush=True)
    print("\n| latency | worse % | better % | steady % | open % | change points % (one) | median ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, series in LATENCIES.items():
        judged = [
            judge_latency(series(np.random.default_rng([zlib.crc32(name.encode()), i]))) for i in range(options.seeds)
        ]
        said = Counter(j.trend.value for j in judged)
        shares = [f"{100 * said[v] / len(judged):.0f}" for v in ("worse", "better", "steady", "inconclusive")]
        some = 100 * float(np.mean([bool(j.changes) for j in judged]))
        one = 100 * float(np.mean([len(j.changes) == 1 for j in judged]))
        ratios = [c.ratio for j in judged for c in j.changes]
        middle = f"{float(np.median(ratios)):.2f}" if ratios else "-"
        print(f"| {name} | {' | '.join(shares)} | {some:.0f} ({one:.0f}) | {middle} |", flush=True)


if __name__ == "__main__":
    main()
