"""Whether the system clock is right: offset and synchronisation, and steps of wall time against monotonic time.

Sources: adjtimex(2), read only; ``chronyc -c tracking`` (chronyc(1)); ``timedatectl show`` (NTPSynchronized).
chronyd disciplines the clock without telling the kernel its offset, so where it runs, its own figure is the better one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from soakd.fields import ConfigModel, Seconds
from soakd.kernel_clock import KernelClock, parse_timedatectl, parse_tracking, read_kernel_clock, run_command
from soakd.model import Event, Kind, Metric, Sample, Severity, State, labels
from soakd.ports import CollectorContext, Item

KIND = "clock_sync"

SYNCHRONISED = Metric(
    "clock_synchronised", "", Kind.STATE, "Whether the system clock is synchronised.",
    "adjtimex STA_UNSYNC and TIME_ERROR; chronyc leap status; timedatectl NTPSynchronized",
    codes=(("no", 0), ("yes", 1)),
)  # fmt: skip
OFFSET = Metric(
    "clock_offset_seconds", "seconds", Kind.GAUGE,
    "How far the system clock is from the time source; above zero it runs ahead.",
    "chronyc tracking system time, else adjtimex offset", ("source",),
)  # fmt: skip
ESTIMATED_ERROR = Metric(
    "clock_estimated_error_seconds", "seconds", Kind.GAUGE, "Estimated error of the clock.", "adjtimex esterror"
)
MAX_ERROR = Metric(
    "clock_max_error_seconds", "seconds", Kind.GAUGE,
    "Bound of the clock's error; grows by 0.5 ms a second while nothing synchronises it.", "adjtimex maxerror",
)  # fmt: skip
STEPS = Metric(
    "clock_steps_total", "steps", Kind.COUNTER, "Steps of the wall clock since soakd started to watch.",
    "wall time - monotonic time",
)  # fmt: skip
METRICS = (SYNCHRONISED, OFFSET, ESTIMATED_ERROR, MAX_ERROR, STEPS)

_REPORTED_BY_RUNNER_S = 0.5


class Config(ConfigModel):
    """``step``: how far wall time must jump against monotonic time to count; ``command_timeout`` bounds chronyc."""

    step: Seconds = 0.1
    command_timeout: Seconds = 3.0


class ClockSyncCollector:
    """``read`` and ``run`` are how the kernel and the time daemon are asked."""

    def __init__(
        self,
        config: Config,
        context: CollectorContext,
        read: Callable[[], KernelClock] = read_kernel_clock,
        run: Callable[[Sequence[str], float], Awaitable[str | None]] = run_command,
    ) -> None:
        self._config = config
        self._clock = context.clock
        self._read = read
        self._run = run
        self._gap_ns: int | None = None
        self._steps = 0

    async def collect(self) -> Sequence[Item]:
        kernel = self._kernel()
        tracking = parse_tracking(await self._run(("chronyc", "-c", "tracking"), self._config.command_timeout) or "")
        now = self._clock.wall_ns()
        items: list[Item] = [*self._watch_steps(now)]
        if isinstance(kernel, OSError):
            why = f"adjtimex: {kernel.strerror}"
            items += [Sample.unknown(m, State.UNSUPPORTED, now, why=why) for m in (ESTIMATED_ERROR, MAX_ERROR)]
        else:
            items.append(Sample.ok(ESTIMATED_ERROR, kernel.estimated_error_s, now))
            items.append(Sample.ok(MAX_ERROR, kernel.max_error_s, now))
        if tracking is not None:
            items.append(Sample.ok(OFFSET, tracking.offset_s, now, labels(source="chronyc")))
            items.append(Sample.ok(SYNCHRONISED, tracking.synchronised, now))
        elif not isinstance(kernel, OSError):
            items.append(_kernel_offset(kernel, now))
            items.append(Sample.ok(SYNCHRONISED, kernel.synchronised, now))
        else:
            items.append(Sample.unknown(OFFSET, State.UNSUPPORTED, now, why="neither chronyc nor adjtimex tells it"))
            items.append(await self._timedatectl(now))
        return items

    async def close(self) -> None:
        return None

    def _kernel(self) -> KernelClock | OSError:
        try:
            return self._read()
        except OSError as error:
            return error

    async def _timedatectl(self, now: int) -> Sample:
        command = ("timedatectl", "show", "--property=NTPSynchronized")
        found = parse_timedatectl(await self._run(command, self._config.command_timeout) or "")
        if found is None:
            why = "neither chronyc, adjtimex nor timedatectl tells it"
            return Sample.unknown(SYNCHRONISED, State.UNSUPPORTED, now, why=why)
        return Sample.ok(SYNCHRONISED, found, now)

    def _watch_steps(self, now: int) -> list[Item]:
        gap = now - self._clock.monotonic_ns()
        step_s = (gap - self._gap_ns) / 1e9 / self._clock.speed if self._gap_ns is not None else 0.0
        self._gap_ns = gap
        stepped = abs(step_s) >= self._config.step
        self._steps += stepped
        items: list[Item] = [Sample.ok(STEPS, self._steps, now)]
        if stepped and abs(step_s) < _REPORTED_BY_RUNNER_S:  # larger ones are reported where they upset schedules
            direction = "forward" if step_s > 0 else "back"
            what = f"the system clock stepped {direction} by {abs(step_s):.3f} s; durations are not affected"
            items.append(Event("clock.step", now, what, Severity.WARNING, (), labels(step_seconds=f"{step_s:.3f}")))
        return items


def _kernel_offset(kernel: KernelClock, now: int) -> Sample:
    if not kernel.synchronised:
        why = "nothing synchronises this clock, so how far it is off is not known"
        return Sample.unknown(OFFSET, State.ABSENT, now, labels(source="adjtimex"), why)
    return Sample.ok(OFFSET, -kernel.offset_s, now, labels(source="adjtimex"))


def build(config: Config, context: CollectorContext) -> ClockSyncCollector:
    return ClockSyncCollector(config, context)
