"""GPU health: is a card, its memory or its way to the processor failing?"""

from __future__ import annotations

from soakd.dashboards.board import Board, Metrics, Row, gpus, happened, hosts, marks
from soakd.dashboards.influxql import GPU, HOST, failed, gained, is_, like, now, rate, timeline, trend
from soakd.dashboards.panels import Column, Look, Panel, Text, graph, log, rows, states
from soakd.dashboards.units import Per
from soakd.metrics import Catalogue

_CARD = [HOST, GPU]
_BY_CARD = ("host", "bdf", "gpu")
_BAD = {"yes": "red", "no": "green"}
_SLOW = Look(interval="1m")
_ONE = ((1, "red"),)


def board(catalogue: Catalogue) -> Board:
    metric = Metrics(catalogue)
    return Board(
        "soakd-gpu",
        "soakd: GPU health",
        "Is a card, its memory or its way to the processor failing? Every counter is shown as what it gained.",
        (hosts(), gpus()),
        (
            Row("Now", _now(metric)),
            Row("Memory errors", _ecc(metric)),
            Row("XIDs", _xids(metric)),
            Row("PCIe errors", _aer(metric)),
            Row("Link and power state", _link(metric)),
            Row("Heat", _heat(metric)),
            Row("What is not known", _unknown(metric)),
        ),
        span="now-6h",
        annotations=marks(_CARD)[:2],
    )


def _now(metric: Metrics) -> tuple[Panel, ...]:
    def ecc(counter: str, error: str, column: str) -> Column:
        where = [*_CARD, is_("counter", counter), is_("error", error)]
        steps = _ONE if error == "uncorrected" else ()
        return Column(now(metric("gpu_ecc_errors_total"), _BY_CARD, where, column), steps)

    return (
        rows(
            Text("Each card now", "The last reading of what decides about a card. What can't be read says why: "
                 "unsupported by the card, or lost."),
            (
                ecc("volatile", "corrected", "SBE since driver load"),
                ecc("volatile", "uncorrected", "DBE since driver load"),
                ecc("aggregate", "uncorrected", "DBE of its life"),
                Column(now(metric("gpu_retired_pages_pending"), _BY_CARD, _CARD, "retirement pending"), colours=_BAD),
                Column(now(metric("gpu_row_remap_pending"), _BY_CARD, _CARD, "remap pending"), colours=_BAD),
                Column(now(metric("gpu_row_remap_failure"), _BY_CARD, _CARD, "remap failed"), colours=_BAD),
                Column(now(metric("gpu_recovery_action"), _BY_CARD, _CARD, "driver asks for")),
                Column(
                    now(metric("gpu_temperature_margin_celsius"), _BY_CARD, _CARD, "margin to slowdown"),
                    ((-273, "red"), (2, "orange"), (5, "green")),
                ),
                Column(now(metric("gpu_performance_state"), _BY_CARD, _CARD, "P-state")),
                Column(now(metric("pcie_link_state"), _BY_CARD, _CARD, "link")),
            ),
            Look(24, 8),
        ),
    )  # fmt: skip


def _ecc(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("ECC errors", "Which card's memory or caches make errors? Uncorrected ones are never normal."),
            (gained(metric("gpu_ecc_errors_total"), [*_CARD, is_("counter", "volatile")], "$tag_bdf $tag_error",
                    by=("bdf", "error")),),
            Look(bars=True, interval="1m"),
        ),
        graph(
            Text("ECC errors by place", "DRAM wears out; SRAM that is uncorrected calls for another card."),
            (gained(metric("gpu_ecc_location_errors_total"), [*_CARD, is_("counter", "volatile")],
                    "$tag_bdf $tag_location $tag_error", by=("bdf", "location", "error")),),
            Look(bars=True, interval="5m"),
        ),
        rows(
            Text("Rows remapped", "How many rows of memory were replaced by spare ones? 512 are the end."),
            (Column(now(metric("gpu_remapped_rows_total"), (*_BY_CARD, "error"), _CARD, "rows"), ((512, "red"),)),),
            Look(8),
        ),
        rows(
            Text("Pages retired", "How many pages were taken out of use (cards before Ampere)? 60 are the end."),
            (Column(now(metric("gpu_retired_pages_total"), (*_BY_CARD, "cause"), _CARD, "pages"), ((60, "red"),)),),
            Look(8),
        ),
        rows(
            Text("Spare rows", "How many banks have which share of their spare rows left? None left: the next error "
                 "can't be repaired."),
            (Column(now(metric("gpu_row_remap_banks"), (*_BY_CARD, "spare"), _CARD, "banks")),),
            Look(8),
        ),
    )  # fmt: skip


def _xids(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("XIDs by class", "Does the error call for a reboot, a reset, or a look at the application?"),
            (gained(metric("gpu_xid_errors_total"), _CARD, "$tag_bdf $tag_class", by=("bdf", "class")),),
            Look(8, bars=True, interval="1m"),
        ),
        rows(
            Text("XIDs by number", "Which XIDs did each card report since soakd watches it?"),
            (Column(now(metric("gpu_xid_code_errors_total"), (*_BY_CARD, "xid", "class"), _CARD, "seen")),),
            Look(8), sort="seen",
        ),
        log(Text("Events of the cards", "What did the driver and the kernel say?"),
            happened([HOST, like("gpu", "^$gpu$")]), Look(8)),
    )  # fmt: skip


def _aer(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("AER by type and device", "Which error, counted at the card or at a bridge on its way? An error may "
                 "be counted at the link partner."),
            (gained(metric("pcie_aer_errors_total"), _CARD, "$tag_role $tag_device $tag_severity $tag_error",
                    by=("role", "device", "severity", "error")),),
            Look(bars=True, interval="1m", height=10),
        ),
        graph(
            Text("AER totals by severity", "Fatal and non-fatal errors are never normal; correctable ones are a rate."),
            (gained(metric("pcie_aer_severity_errors_total"), _CARD, "$tag_role $tag_device $tag_severity",
                    by=("role", "device", "severity")),),
            Look(bars=True, interval="1m", height=10),
        ),
        graph(
            Text("Messages at the root port", "What reached the top of the tree?"),
            (gained(metric("pcie_aer_rootport_messages_total"), _CARD, "$tag_device $tag_severity",
                    by=("device", "severity")),),
            Look(bars=True, interval="1m"),
        ),
        graph(
            Text("Replays per minute, and the limit of the link", "Is the link noisy? The limit follows from speed "
                 "and width: ceil(GT/s x 0.06 x lanes)."),
            (
                rate(metric("pcie_replays_total"), _CARD, "$tag_bdf replays", Per.MINUTE),
                trend(metric("pcie_replay_limit_per_minute"), ("bdf",), _CARD, "$tag_bdf limit", "last"),
            ),
            _SLOW,
        ),
        states(
            Text("Do AER and NVML agree?", "One side alone counting errors: firmware keeps the other from seeing "
                 "them."),
            (timeline(metric("pcie_aer_agreement"), ("bdf",), _CARD, "$tag_bdf"),),
            Look(12, 5, interval="2m"), colours={"nvml_only": "orange", "aer_only": "orange"},
        ),
    )  # fmt: skip


def _link(metric: Metrics) -> tuple[Panel, ...]:
    return (
        states(
            Text("Link", "Does the link run at its full speed and width? Idle links train down: only `degraded` under "
                 "load is bad."),
            (timeline(metric("pcie_link_state"), ("bdf",), _CARD, "$tag_bdf"),), Look(12, 6, interval="2m"),
        ),
        states(
            Text("Power state (D-state) of the card and its bridges", "Did anything on the way fall asleep?"),
            (timeline(metric("pcie_power_state"), ("role", "device"), _CARD, "$tag_role $tag_device"),),
            Look(12, 6, interval="2m"), colours={"D3hot": "orange", "D3cold": "red", "error": "red"},
        ),
        graph(
            Text("Link speed", "At which speed does each part of the way run, and what could it do?"),
            (trend(metric("pcie_link_speed_transfers_per_second"), ("role", "device", "which"), _CARD,
                   "$tag_role $tag_device $tag_which", "last"),),
            _SLOW,
        ),
        graph(
            Text("Link width", "Did the link lose lanes?"),
            (trend(metric("pcie_link_width_lanes"), ("role", "device", "which"), _CARD,
                   "$tag_role $tag_device $tag_which", "last"),),
            Look(interval="1m", minimum=0.0),
        ),
        graph(
            Text("PCIe traffic", "How much goes over the link?"),
            (rate(metric("pcie_bytes_total"), _CARD, "$tag_bdf $tag_direction"),), _SLOW,
        ),
    )  # fmt: skip


def _heat(metric: Metrics) -> tuple[Panel, ...]:
    return (
        graph(
            Text("Temperature within each window", "How far did each sensor swing between two readings kept?"),
            (
                trend(metric("gpu_temperature_window_max_celsius"), ("bdf", "sensor"), _CARD,
                      "$tag_bdf $tag_sensor highest", "max"),
                trend(metric("gpu_temperature_window_min_celsius"), ("bdf", "sensor"), _CARD,
                      "$tag_bdf $tag_sensor lowest", "min"),
                trend(metric("gpu_temperature_threshold_celsius"), ("bdf", "threshold"),
                      [*_CARD, like("threshold", "^(slowdown|mem_max)$")], "$tag_bdf $tag_threshold", "last"),
            ),
            _SLOW,
        ),
        graph(
            Text("Time in each band, share", "Is the card inside the band that it is meant to keep? The `unknown` side "
                 "is time without a reading."),
            (rate(metric("gpu_temperature_band_seconds_total"), _CARD, "$tag_bdf $tag_band $tag_side"),),
            Look(interval="1m", minimum=0.0),
        ),
        graph(
            Text("Throttled, share of time", "Why does the card slow itself down? Hardware and software thermal are "
                 "heat; the power cap is not."),
            (rate(metric("gpu_throttle_seconds_total"), _CARD, "$tag_bdf $tag_reason"),),
            Look(interval="1m", minimum=0.0),
        ),
        states(
            Text("Throttle reasons, as polled", "What was active at the moments of reading?"),
            (timeline(metric("gpu_throttle_active"), ("bdf", "reason"), _CARD, "$tag_bdf $tag_reason", "max"),),
            Look(12, 8, interval="1m"), colours=_BAD,
        ),
    )  # fmt: skip


def _unknown(metric: Metrics) -> tuple[Panel, ...]:
    used, temperature, ecc = (
        metric(name) for name in ("gpu_memory_used_bytes", "gpu_temperature_celsius", "gpu_ecc_errors_total")
    )
    return (
        states(
            Text("Readings of the cards that failed", "When could memory, heat or ECC of a card not be read, and why? "
                 "Nothing is shown while all is read."),
            (
                failed(used, ("bdf",), _CARD, "$tag_bdf memory"),
                failed(temperature, ("bdf",), _CARD, "$tag_bdf temperature"),
                failed(ecc, ("bdf",), _CARD, "$tag_bdf ECC"),
            ),
            Look(12, 8, interval="1m"),
        ),
        rows(
            Text("Sources of XIDs", "Can XIDs be heard at all? Some reach only the kernel's log."),
            (Column(now(metric("gpu_xid_source"), (*_BY_CARD, "source"), _CARD, "heard through")),),
        ),
    )  # fmt: skip
