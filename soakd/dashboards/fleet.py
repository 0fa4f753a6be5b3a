"""Fleet overview: which server needs a person now?"""

from __future__ import annotations

from soakd.dashboards.board import Board, Metrics, Row, happened, hosts, marks
from soakd.dashboards.influxql import HOST, counted, gained, is_, newest, now, points, timeline, trend, worst
from soakd.dashboards.panels import Column, Look, Panel, Text, graph, log, rows, states
from soakd.metrics import Catalogue

RUN_LINK = (
    "/d/soakd-run?var-datasource=${datasource}&var-host=${__data.fields.host}&var-run=${__data.fields.run}"
    "&time=${__data.fields.Time.numeric}&time.window=18000000"
)
"""Five hours around the end of the run."""
_WHOLE_CARD = is_("series", "gpu_memory_used_bytes")
_CARD = ("host", "bdf", "gpu")


def board(catalogue: Catalogue) -> Board:
    metric = Metrics(catalogue)
    return Board(
        "soakd-fleet",
        "soakd: Fleet overview",
        "Which servers are watched, how did the last soak of each end, which card is the worst of all?",
        (hosts(),),
        (
            Row("Hosts", _hosts(metric)),
            Row("Cards", _cards(metric)),
            Row("Soaks", _soaks(metric)),
        ),
        span="now-24h",
        refresh="1m",
        annotations=marks([HOST])[:1],
    )


def _hosts(metric: Metrics) -> tuple[Panel, ...]:
    here = [HOST]
    up, core = metric("collector_up"), metric("gpu_temperature_celsius")
    return (
        rows(
            Text(
                "Every host: last verdict, fastest growth, worst reading",
                "One row for each host that sent anything in the time range. Growth is that of the card whose memory "
                "grew fastest in the soaks of the time range. The worst of a host is the worst of what is known now; "
                "fewer cards read than there are: see the table of cards.",
            ),
            (
                Column(newest(metric("soak_outcome"), ("host",), ("run", "model", "simulated"), here, "last verdict")),
                Column(
                    worst(metric("soak_growth_bytes_per_hour"), ("host",), _CARD,
                          [HOST, is_("bound", "fit"), _WHOLE_CARD], "fastest growth")
                ),
                Column(worst(up, ("host",), ("host", "collector"), here, "worst collector")),
                Column(counted(core, ("host",), _CARD, [HOST, is_("sensor", "core")], "cards", known=False)),
                Column(counted(core, ("host",), _CARD, [HOST, is_("sensor", "core")], "cards read", known=True)),
                Column(
                    worst(core, ("host",), _CARD, [HOST, is_("sensor", "core")], "hottest core"),
                    ((80, "orange"), (87, "red")),
                ),
                Column(
                    worst(metric("gpu_ecc_errors_total"), ("host",), _CARD,
                          [HOST, is_("counter", "aggregate"), is_("error", "uncorrected")], "most uncorrected ECC"),
                    ((1, "red"),),
                ),
                Column(now(metric("server_process_up"), ("host",), here, "server")),
                Column(now(metric("load_requests_per_second"), ("host",), here, "load, last seen")),
            ),
            Look(span=24, height=9),
            sort="last verdict",
        ),
        states(
            Text(
                "State of every host",
                "The worst collector of each host. A host without colour sent nothing: it is down, cut off, or soakd "
                "does not run on it.",
            ),
            (timeline(up, ("host",), here, "$tag_host", pick="max"),),
            Look(span=24, height=6, interval="2m"),
        ),
    )  # fmt: skip


def _cards(metric: Metrics) -> tuple[Panel, ...]:
    here = [HOST]
    bad = {"yes": "red", "no": "green"}
    return (
        rows(
            Text(
                "Every card, the hottest first",
                "The last reading of each card; a reading that is not known says why. A card that is lost keeps its "
                "row.",
            ),
            (
                Column(
                    now(metric("gpu_temperature_celsius"), _CARD, [HOST, is_("sensor", "core")], "core"),
                    ((80, "orange"), (87, "red")),
                ),
                Column(
                    now(metric("gpu_temperature_celsius"), _CARD, [HOST, is_("sensor", "memory")], "memory"),
                    ((90, "orange"), (95, "red")),
                ),
                Column(now(metric("gpu_memory_used_bytes"), _CARD, here, "VRAM used")),
                Column(
                    now(metric("gpu_ecc_errors_total"), _CARD,
                        [HOST, is_("counter", "aggregate"), is_("error", "uncorrected")], "uncorrected ECC, life"),
                    ((1, "red"),),
                ),
                Column(now(metric("gpu_row_remap_pending"), _CARD, here, "remap pending"), colours=bad),
                Column(now(metric("gpu_row_remap_failure"), _CARD, here, "remap failed"), colours=bad),
                Column(
                    now(metric("gpu_xid_errors_total"), _CARD, [HOST, is_("class", "reboot")], "XIDs that need a boot"),
                    ((1, "red"),),
                ),
                Column(now(metric("pcie_link_state"), _CARD, here, "link")),
            ),
            Look(span=24, height=10),
            sort="core",
        ),
        graph(
            Text("Core temperature of every card", "Which card runs hotter than its neighbours, and since when?"),
            (trend(metric("gpu_temperature_celsius"), ("host", "bdf"), [HOST, is_("sensor", "core")],
                   "$tag_host $tag_bdf", "max"),),
            Look(steps=((87, "red"),), interval="1m"),
        ),
        graph(
            Text("XIDs", "Which card reported errors of the driver, and of which class?"),
            (gained(metric("gpu_xid_errors_total"), here, "$tag_host $tag_bdf $tag_class",
                    by=("host", "bdf", "class")),),
            Look(bars=True, interval="1m"),
        ),
    )  # fmt: skip


def _soaks(metric: Metrics) -> tuple[Panel, ...]:
    here = [HOST]
    run = ("host", "run")
    return (
        rows(
            Text("Soaks", "Every soak that ended in the time range; a click on one opens it."),
            (
                Column(now(metric("soak_outcome"), (*run, "profile", "model", "target", "simulated"), here, "verdict")),
                Column(now(metric("soak_duration_seconds"), run, here, "length")),
                Column(now(metric("soak_coverage_ratio"), run, here, "evidence")),
                Column(
                    now(metric("soak_limits"), run, [HOST, is_("outcome", "FAIL")], "limits failed"), ((1, "red"),)
                ),
                Column(
                    now(metric("soak_limits"), run, [HOST, is_("outcome", "INCONCLUSIVE")], "limits open"),
                    ((1, "orange"),),
                ),
            ),
            Look(span=24, height=9),
            keep_time="ended",
            sort="ended",
            link=RUN_LINK,
        ),
        graph(
            Text("Growth of VRAM, by the end of each soak", "Is a leak of a card new, or was it there for weeks?"),
            (points(metric("soak_growth_bytes_per_hour"), ("host", "bdf"), [HOST, is_("bound", "fit"), _WHOLE_CARD],
                    "$tag_host $tag_bdf"),),
            Look(dots=True),
        ),
        log(Text("Critical events", "What went badly wrong anywhere?"), happened([HOST, is_("severity", "critical")])),
    )  # fmt: skip
