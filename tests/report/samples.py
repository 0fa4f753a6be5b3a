"""Reports to render: a rich one, an empty one, an interrupted one, and strings that would like to be code."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from soakd.model import Outcome, Severity
from soakd.report.charts import Charts, thin
from soakd.report.facts import (
    AgreementCheck,
    Canary,
    ClockStep,
    CollectorCoverage,
    Gpu,
    Host,
    Journal,
    LogTail,
    PromptBand,
    PromptMix,
    SelfCheck,
    SeriesVerdict,
    ServerRatio,
    Span,
    Stage,
    Target,
    Thermal,
    WorkRate,
)
from soakd.report.figures import DecodeRetention, Latency, Load, Measure, ReplicaLoad
from soakd.report.model import SCHEMA, EventLine, FindingLine, LimitLine, Outage, Report

GIB = 2**30
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}{%x%}\x1b[31mred\x1b]8;;http://evil\x07\x1b[2J"
    "\r\n| pipe `tick` [link](javascript:x) \u202egnp.exe\x00\ud800 </style></svg>]]> @everyone #1 " + "long" * 3000
)


def empty() -> Report:
    """A run in which nothing could be read: everything is unknown."""
    nothing = Load(None, None, None, None, None, None, None, None, None, {}, Latency(), Latency(), Latency(), Latency())
    return Report(
        SCHEMA, "run-empty", Outcome.INCONCLUSIVE, False, "2026-12-01T00:00:00.000Z", None,
        Target("http://127.0.0.1:9", "", ""), nothing, (), (), (), (), "Nothing could be measured.",
    )  # fmt: skip


def interrupted() -> Report:
    """Killed in its 11th minute; an outage that never ended."""
    run = full()
    outage = Outage("2026-12-01T00:10:00.000Z", None, None, None, 600.0)
    return replace(
        run,
        run_id="run-cut",
        outcome=Outcome.INCONCLUSIVE,
        duration_s=660.0,
        interrupted=True,
        interrupted_by="killed",
        outages=(outage,),
        why="The run was killed after 11m of 2h.",
    )


def hostile() -> Report:
    """Every text that comes from outside is an attack."""
    run = full()
    bad = HOSTILE
    target = Target(bad, bad, bad, bad, bad, True, 1, bad, bad, None, None, (bad,), (bad,))
    labels = {bad: bad}
    return replace(
        run,
        run_id=bad,
        target=target,
        why=bad,
        profile=bad,
        scenario=bad,
        gpu_note=bad,
        boot_id=bad,
        interrupted=True,
        interrupted_by=bad,
        versions={bad: bad},
        config={bad: bad},
        host=Host(bad, bad, bad, bad),
        gpus=(replace(run.gpus[0], name=bad, uuid=bad, serial=bad, bdf=bad, link=bad, throttle_reasons=(bad,)),),
        limits=(LimitLine(bad, Outcome.FAIL, 1.0, 2.0, bad, 1.0, bad, labels),),
        findings=(FindingLine(bad, Severity.CRITICAL, bad, bad, bad, 1.0, labels, bad, 1.0, bad),),
        events=(EventLine(bad, bad, bad, Severity.CRITICAL, 5.0, labels, labels),),
        outages=(Outage(bad, bad, bad, 1, 1.0, 2.0, 3.0, False, bad),),
        log_tails=(LogTail(bad, bad, (bad, bad)),),
        load=replace(run.load, errors={bad: 1}, finish_reasons={bad: 2}, replicas=(ReplicaLoad(bad, 1, 1),)),
        measures=(Measure(bad, bad, 1.0, 0.5, 1.5),),
        collectors=(CollectorCoverage(bad, bad, 0.5, why=bad),),
        server_ratios=(ServerRatio(bad, labels, 0.5, drift=bad, why=bad),),
        series=(
            SeriesVerdict(
                bad, labels, bad, "leak", bad, 1.0, 0.5, 1.5, bad, why=bad, by_work=(WorkRate(bad, 1, 1, 1, 1, 1),)
            ),
        ),
    )


def many() -> Report:
    """200 findings, 500 events, 60 limits."""
    run = full()
    findings = tuple(
        FindingLine(
            f"rule.R{i}",
            list(Severity)[i % 3],
            f"Finding number {i}",
            "Something " * 20,
            "2026-12-01T00:00:00.000Z",
            i * 30.0,
        )
        for i in range(200)
    )
    events = tuple(
        EventLine("2026-12-01T00:00:00.000Z", "xid", f"Event {i}", Severity.WARNING, i * 14.0) for i in range(500)
    )
    limits = tuple(replace(run.limits[i % len(run.limits)], name=f"limit_{i}") for i in range(60))
    return replace(run, findings=findings, events=events, limits=limits, events_left_out=1234, findings_left_out=56)


def full() -> Report:
    """Two hours against vLLM on two cards: an outage, an XID, a leak, a mix that was cut."""
    e2e = Latency(0.412, 0.58, 0.742, 1.93, 9.4, 0.447, 204_812)
    load = Load(
        216_000,
        215_988,
        204_812,
        11_164,
        12,
        28.4,
        None,
        14.2,
        1_812.0,
        {"connect": 10_920, "http_500": 201, "truncated": 31, "empty": 12},
        Latency(0.104, 0.14, 0.182, 0.61, 4.2, 0.118, 204_812),
        Latency(0.105, 0.15, 0.191, 0.66, 4.4, 0.121, 204_812),
        Latency(0.0362, 0.041, 0.0433, 0.071, 1.9, 0.0371, 12_900_411),
        e2e,
        mode="poisson",
        rate_asked_per_s=30.0,
        input_tokens=88_120_331,
        output_tokens=13_046_400,
        input_tokens_per_s=12_239.0,
        requests_without_usage=0,
        finish_reasons={"length": 190_011, "stop": 14_801},
        empty_answers=12,
        goodput_per_s=27.1,
        seed=7,
        decode_retention=DecodeRetention(0.981, 27.6, 27.08, (600.0, 1200.0), (6600.0, 7200.0)),
    )
    gpus = tuple(
        Gpu(
            f"GPU-{i}f0c2d1e-1111-2222-3333-44445555666{i}",
            f"0000:0{i}:00.0",
            f"165402210{i}",
            "Tesla V100-PCIE-32GB",
            i,
            used_by_target=True,
            found_by="compute processes of pid 4211",
            other_processes=0,
            memory_total_bytes=32 * GIB,
            memory_used_bytes=Span(27.1 * GIB, 27.6 * GIB, 27.9 * GIB),
            temperature_celsius=Span(41, 77.8, 81),
            power_watts=Span(38, 212, 250),
            utilisation_ratio=Span(0, 0.82, 1),
            throttled_s=0.0 if i else 31.0,
            throttle_reasons=() if i else ("SW thermal slowdown",),
            ecc_corrected_increase=0,
            ecc_uncorrected_increase=0,
            aer_correctable_increase=3,
            aer_fatal_increase=0,
            xids=() if i else (31,),
            link="gen3 x16",
            driver="535.183.06",
            thermal=Thermal(0.21, 0.19, 0.23, 0.1, -0.2, 0.4, 0.9, 2.1, 240.0, 1.5, 1.2, 1.8, 1) if i else None,
        )
        for i in range(2)
    )
    limits = (
        LimitLine("e2e_p95", Outcome.PASS, 0.742, 0.8, "seconds", 0.997, "below the limit with its interval"),
        LimitLine(
            "request_rate",
            Outcome.FAIL,
            28.4,
            30.0,
            "requests/s",
            1.0,
            "the outage cost 10,920 requests",
            user_set=True,
        ),
        LimitLine("vram_used", Outcome.PASS, 27.9 * GIB, 28e9 * 1.1, "bytes", 0.9991, "highest of both cards"),
        LimitLine(
            "vram_leak",
            Outcome.INCONCLUSIVE,
            3.9 * 2**20,
            2.0 * 2**20,
            "bytes/hour",
            0.98,
            "the interval holds the limit; 3h 40m would be needed",
            {"bdf": "0000:01:00.0"},
            True,
        ),
        LimitLine(
            "thermal_drift", Outcome.NOT_JUDGED, None, 0.5, "celsius/hour", 0.0, "no inlet sensor", needs_s=14400.0
        ),
        LimitLine("ecc_uncorrected", Outcome.PASS, 0.0, 0.0, "", 1.0, "no increase"),
        LimitLine("outages", Outcome.FAIL, 1.0, 0.0, "", 1.0, "an unplanned outage of 48 s"),
    )
    at = "2026-12-01T01:00:00.000Z"
    findings = (
        FindingLine(
            "outage",
            Severity.CRITICAL,
            "The server was down for 48 s",
            "Process 4211 ended by signal 9, 2 s after XID 31 on 0000:00:00.0; it came back as 4890.",
            at,
            3600.0,
            {"bdf": "0000:00:00.0"},
        ),
        FindingLine(
            "latency.change",
            Severity.WARNING,
            "P95 of E2E doubled 40 s after the restart",
            "From 0.36 s to 0.74 s.",
            at,
            3690.0,
            {},
            "e2e_seconds",
            0.742,
            "seconds",
        ),
        FindingLine(
            "agreement.concurrency", Severity.INFO, "The server never ran more than 10 requests", "16 were asked.", at
        ),
    )
    events = (
        EventLine("2026-12-01T00:02:00.000Z", "stage.measure", "Warm-up ended", Severity.INFO, 120.0),
        EventLine(at, "xid", "XID 31: memory page fault", Severity.CRITICAL, 3600.0, {"bdf": "0000:00:00.0"}),
        EventLine(at, "server.restart", "pid 4211 became 4890", Severity.WARNING, 3648.0, {}, {"signal": "9"}),
    )
    return Report(
        SCHEMA,
        "20261201T000000-3f1a",
        Outcome.FAIL,
        False,
        "2026-12-01T00:00:00.000Z",
        7204.5,
        Target(
            "http://127.0.0.1:8000",
            "openai_chat",
            "Qwen/Qwen3-30B-A3B",
            "vLLM",
            "0.11.2",
            True,
            4211,
            "/home/alice/venv/bin/vllm serve Qwen/Qwen3-30B-A3B --api-key ***",
            "listens on port 8000",
            8192,
            256,
            ("--tensor-parallel-size=2", "--max-model-len=8192"),
        ),
        load,
        limits,
        findings,
        events,
        (
            Outage(
                at,
                "2026-12-01T01:00:48.000Z",
                "2026-12-01T01:01:30.000Z",
                10_920,
                3600.0,
                3648.0,
                3690.0,
                False,
                "signal 9",
            ),
        ),
        "The server was down for 48 s, and 28.4 requests/s were sustained where 30 were asked.",
        profile="customer-service",
        wanted_duration_s=7200.0,
        coverage=0.993,
        boot_id="0f4f7a43-9a07-4bb3-8f8e-7d2f44e3ac11",
        host=Host("gpu07.corp.example.com", "Debian GNU/Linux 12", "6.1.0-28-amd64", "Xeon Gold 6248", 40, 256 * GIB),
        gpus=gpus,
        stages=(
            Stage("idle", 0, 60),
            Stage("warm-up", 60, 60),
            Stage("measure", 120, 6960, True),
            Stage("idle", 7080, 124.5),
        ),
        prompt_mix=PromptMix(
            (PromptBand(0, 512, 0.8, 0.8), PromptBand(512, 2048, 0.15, 0.15), PromptBand(2048, None, 0.05, 0.05)),
            True,
            "prompts above 7,900 tokens were cut: the server's context is 8,192 tokens",
        ),
        agreement=(
            AgreementCheck("requests", 204_812, 204_812, "", "agree"),
            AgreementCheck("output tokens", 13_046_400, 13_046_411, "tokens", "agree"),
            AgreementCheck("running requests", 16, 10, "", "disagree", "the server never ran more than 10"),
            AgreementCheck("preemptions", None, None, "", "unknown", "not exported"),
        ),
        canary=Canary("exact", 3, 351, 0, 0),
        self_check=SelfCheck(False, "", 0.0021, 0.0014, 0.31, 0.002, 0.011, 48 * 2**20, 48 * 2**20),
        server_ratios=(
            ServerRatio(
                "prefix_cache_hits",
                {"replica": "127.0.0.1:8000"},
                0.612,
                0.604,
                0.62,
                0.631,
                0.588,
                -0.043,
                -0.052,
                -0.034,
                "fell",
                "prefix cache hit rate is 61.2%",
            ),
        ),
        series=(
            SeriesVerdict(
                "gpu_memory_used_bytes",
                {"bdf": "0000:01:00.0"},
                "bytes",
                "inconclusive",
                "staircase",
                3.9 * 2**20,
                1.1 * 2**20,
                6.7 * 2**20,
                percent_per_hour=0.012,
                smallest_detectable=6.1 * 2**20,
                why="four pages in two hours",
                points=7200,
                used_points=6600,
                exhausted_in_s=3.9e6,
                headroom=4.1 * GIB,
                slope_now=2.0 * 2**20,
                by_work=(
                    WorkRate("request", 1000.0, 1.9e4, 5.0e3, 3.3e4, 0.97),
                    WorkRate("hour", 1.0, 3.9 * 2**20, 1.1 * 2**20, 6.7 * 2**20, 0.03),
                ),
                detected_at_s=2032.6,
            ),
        ),
        measures=(Measure("e2e_p95", "seconds", 0.742, 0.731, 0.753, "lower", "batch means", 30),),
        collectors=(
            CollectorCoverage("gpu_memory", "ok", 0.999, 7204, 7197, 0.004),
            CollectorCoverage("pcie_aer", "absent", 0.0, 720, 0, None, "no AER files under /sys/bus/pci"),
        ),
        clock_steps=(ClockStep("2026-12-01T00:30:00.000Z", 1800.0, -0.412),),
        log_tails=(
            LogTail(
                at, "journald unit vllm.service", ("INFO engine started", "ERROR CUDA error: an illegal memory access")
            ),
        ),
        journal=Journal(1_440_212, 3, 61 * 2**20, {"queue full": 2}, 0.0),
        versions={"soakd": "0.1.0", "driver": "535.183.06", "python": "3.11.2"},
        config={"target": {"url": "http://127.0.0.1:8000"}, "load": {"rate": 30, "arrivals": "poisson"}},
    )


def charts(duration: float = 7200.0) -> Charts:
    rng = random.Random(1)
    times = [float(t) for t in range(int(duration))]
    up = [t for t in times if not 3600 <= t < 3648]
    p95 = [0.36 * (2 if t > 3690 else 1) + rng.gauss(0, 0.02) for t in up]
    series = [
        thin("P95 E2E", "seconds", "latency", up, p95, limit=0.8),
        thin("P50 E2E", "seconds", "latency", up, [v * 0.6 for v in p95]),
        thin(
            "completed",
            "requests/s",
            "rate",
            times,
            [0.0 if 3600 <= t < 3648 else rng.gauss(30, 2) for t in times],
            limit=30,
        ),
        thin("errors", "errors/min", "errors", times, [800.0 if 3600 <= t < 3648 else 0.0 for t in times]),
        thin("rss_bytes", "bytes", "memory", up, [4e9 + t * 300 for t in up]),
    ]
    for i in range(2):
        labels = {"gpu": f"GPU-{i}"}
        steps = [27.5 * GIB + 2 * 2**20 * (t // (1500 + 400 * i)) for t in times]
        series.append(thin("gpu_memory_used_bytes", "bytes", "memory", times, steps, labels=labels, limit=30.8e9))
        heat = [78 - 35 * math.exp(-t / 240) + rng.gauss(0, 0.6) + 2 * i for t in times]
        series.append(thin("gpu_temperature_celsius", "celsius", "temperature", times, heat, labels=labels, limit=85))
    return Charts(duration, tuple(series))
