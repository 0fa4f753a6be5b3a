"""Leak hunt: what grows, how fast, how surely, and until when?"""

from __future__ import annotations

from soakd.dashboards.board import Board, Metrics, Row, gpus, hosts, marks, runs
from soakd.dashboards.influxql import GPU, HOST, RUN, gained, is_, like, now, points, rate, timeline, trend, unlike
from soakd.dashboards.panels import Column, Look, Panel, Text, graph, rows, states
from soakd.dashboards.units import Per
from soakd.metrics import Catalogue

_HERE = [HOST, RUN]
_CARD = [HOST, RUN, GPU]
_SERIES = ("host", "run", "bdf", "series")
_BYTES = like("series", "_bytes")
_ITEMS = unlike("series", "_bytes")
_SLOW = Look(interval="1m")


def board(catalogue: Catalogue) -> Board:
    metric = Metrics(catalogue)
    return Board(
        "soakd-leak",
        "soakd: Leak hunt",
        "What grows, how fast, how surely, and when is it full? Slopes come with their intervals; one whose interval "
        "holds zero is no leak.",
        (hosts(), runs(several=True), gpus()),
        (
            Row("Slopes, as fitted at the end of each run", _slopes(metric)),
            Row("Card", _card(metric)),
            Row("PyTorch's allocator", _allocator(metric)),
            Row("Host and processes", _host(metric)),
            Row("Work done", _work(metric)),
        ),
        span="now-6h",
        refresh="1m",
        annotations=marks(_HERE),
    )


def _slopes(metric: Metrics) -> tuple[Panel, ...]:
    slope = metric("soak_growth_bytes_per_hour")
    items = metric("soak_growth_items_per_hour")
    bounds = (("slope", "fit"), ("low", "low"), ("high", "high"), ("smallest detectable", "detectable"))
    return (
        rows(
            Text(
                "Growth of memory",
                "Each series that was judged. `smallest detectable` is the slope that this run could just have told "
                "from none: a leak below it stays open.",
            ),
            (
                Column(now(metric("soak_growth_verdict"), _SERIES, [*_HERE, _BYTES], "verdict")),
                Column(now(metric("soak_growth_shape"), _SERIES, [*_HERE, _BYTES], "shape")),
                *(Column(now(slope, _SERIES, [*_HERE, is_("bound", b)], name)) for name, b in bounds),
                Column(now(metric("soak_growth_ratio_per_hour"), _SERIES, _HERE, "share an hour")),
                Column(now(metric("soak_growth_full_in_seconds"), _SERIES, _HERE, "full in")),
            ),
            Look(24, 10), sort="slope",
        ),
        rows(
            Text("Growth of files and threads", "The same for what is counted."),
            (
                Column(now(metric("soak_growth_verdict"), _SERIES, [*_HERE, _ITEMS], "verdict")),
                *(Column(now(items, _SERIES, [*_HERE, is_("bound", b)], name)) for name, b in bounds),
            ),
            Look(12, 8), sort="slope",
        ),
        graph(
            Text("Slopes and the ends of their intervals, run by run", "Do runs agree? Points of one run stand one "
                 "above the other: high, slope, low."),
            tuple(
                points(slope, ("host", "bdf"), [HOST, is_("bound", b), is_("series", "gpu_memory_used_bytes")],
                       f"$tag_host $tag_bdf {name}") for name, b in bounds[:3]
            ),
            Look(dots=True),
        ),
    )  # fmt: skip


def _card(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("VRAM used, by card", "The driver's figure moves in pages of 2 MiB and shows torch's pool, not what "
                 "is in it."),
            (trend(metric("gpu_memory_used_bytes"), ("host", "bdf"), _CARD, "$tag_host $tag_bdf", "max"),), _SLOW,
        ),
        graph(
            Text("VRAM by process", "Whose memory grows? A pid in a container may be another one."),
            (trend(metric("gpu_process_memory_bytes"), ("bdf", "pid", "type"), _CARD, "$tag_bdf pid $tag_pid $tag_type",
                   "max"),),
            _SLOW,
        ),
        graph(
            Text("BAR1 used", "Mappings that are never taken back use up BAR1."),
            (trend(metric("gpu_bar1_used_bytes"), ("bdf",), _CARD, "$tag_bdf", "max"),), _SLOW,
        ),
        states(
            Text("VRAM outside the allocator", "NVML's figure of the processes less what the allocator reserved: "
                 "growth here is a leak outside torch. Known only with the probe."),
            (timeline(metric("gpu_memory_outside_allocator_bytes"), ("gpu",), _CARD, "$tag_gpu", "max"),),
            Look(12, 8, interval="1m"),
        ),
    )  # fmt: skip


def _allocator(metric: Metrics) -> tuple[Panel, ...]:
    by = ("host", "run", "gpu")
    pools = (*by, "pool")

    def column(name: str, title: str, tags: tuple[str, ...] = pools) -> Column:
        return Column(now(metric(name), tags, _CARD, title))

    return (
        rows(
            Text("Allocator by pool", "What does torch hold, and how much of it is in use? Unknown without soakd's "
                 "probe in the server."),
            (
                column("allocator_allocated_bytes", "allocated"), column("allocator_requested_bytes", "requested"),
                column("allocator_active_bytes", "active"), column("allocator_reserved_bytes", "reserved"),
                column("allocator_inactive_split_bytes", "inactive split"), column("allocator_segments", "segments"),
            ),
            Look(12, 8),
        ),
        rows(
            Text("Fragmentation", "How much of what is reserved can't be used? Retries and OOMs are its end."),
            (
                column("allocator_fragmentation_ratio", "fragmentation", by),
                column("allocator_slack_ratio", "slack", by),
                column("allocator_retries_total", "retries", by), column("allocator_ooms_total", "OOMs", by),
            ),
            Look(12, 8),
        ),
    )  # fmt: skip


def _host(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("Memory of the server's processes", "Anonymous and swapped memory is what leaks; PSS and USS share "
                 "out what processes have in common."),
            tuple(
                trend(metric(f"server_process_{kind}_bytes"), ("host", "role"), _HERE, f"$tag_host $tag_role {name}")
                for kind, name in (("anon_swap", "anonymous + swap"), ("rss", "RSS"), ("pss", "PSS"), ("uss", "USS"))
            ),
            _SLOW,
        ),
        graph(
            Text("Memory of the host", "Does the whole host run out?"),
            (
                trend(metric("host_memory_available_bytes"), ("host",), _HERE, "$tag_host available", "min"),
                trend(metric("host_swap_used_bytes"), ("host",), _HERE, "$tag_host swap used", "max"),
                trend(metric("host_shm_used_bytes"), ("host",), _HERE, "$tag_host shared memory", "max"),
                trend(metric("host_memory_unreclaimable_slab_bytes"), ("host",), _HERE, "$tag_host kernel slab", "max"),
            ),
            _SLOW,
        ),
        graph(
            Text("Open files of the server", "Does it forget to close files or sockets?"),
            (
                trend(metric("server_process_open_files"), ("host", "role"), _HERE, "$tag_host $tag_role", "max"),
                trend(metric("server_process_open_files_limit"), ("host",), _HERE, "$tag_host limit", "last"),
            ),
            _SLOW,
        ),
        graph(
            Text("Threads of the server", "Does it forget to end threads?"),
            (trend(metric("server_process_threads"), ("host", "role"), _HERE, "$tag_host $tag_role", "max"),), _SLOW,
        ),
        graph(
            Text("soakd's own memory", "Does the monitor itself leak?"),
            (trend(metric("soakd_process_resident_bytes"), ("host", "role"), _HERE, "$tag_host $tag_role", "max"),),
            _SLOW,
        ),
        graph(
            Text("OOM kills", "Did the kernel kill anything?"),
            (gained(metric("host_oom_kills_total"), _HERE, "$tag_host"),), Look(bars=True, interval="1m"),
        ),
    )  # fmt: skip


def _work(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("Requests an hour", "Growth that follows the work is not growth in time: compare with the slopes."),
            (rate(metric("load_requests_completed_total"), _HERE, "$tag_host", Per.HOUR),), _SLOW,
        ),
        graph(
            Text("Tokens an hour", "The same by tokens."),
            (
                rate(metric("load_output_tokens_total"), _HERE, "$tag_host output", Per.HOUR),
                rate(metric("load_input_tokens_total"), _HERE, "$tag_host input", Per.HOUR),
            ),
            _SLOW,
        ),
    )  # fmt: skip
