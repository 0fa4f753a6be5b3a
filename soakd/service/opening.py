"""Opens the journal as the configuration says, and learns from it whether the host was restarted since."""

from __future__ import annotations

from dataclasses import replace

from soakd.config import Loaded
from soakd.journal import Journal, JournalReader, RetentionPolicy
from soakd.model import Event, Severity, labels
from soakd.ports import Clock, Roots
from soakd.soak.environment import boot_id

BOOT = "boot_id"
_PRESSURE = "host_pressure"


def open_journal(loaded: Loaded, clock: Clock | None = None) -> Journal:
    """With the cap and the retention of the configuration. Raises JournalError."""
    kept = loaded.config.retention
    policy = RetentionPolicy(int(kept.raw * 1e9), int(kept.minutes * 1e9), int(kept.hours * 1e9))
    return Journal.open(loaded.config.data_dir, max_bytes=kept.max_bytes, clock=clock, retention=policy)


def last_boot(loaded: Loaded, journal: Journal, roots: Roots) -> tuple[str, str]:
    """The boot that the journal's owner (or its newest run) saw last, and the one of now, which is kept in its place.

    Empty where it is not known.
    """
    with JournalReader(loaded.config.data_dir) as reader:
        kept = reader.kept(BOOT)
        before = kept.decode() if kept else next((run.boot_id for run in reader.runs(limit=1, brief=True)), "")
    now = boot_id(roots)
    if now:
        journal.keep(BOOT, now.encode())
    return before, now


def knowing_last_boot(loaded: Loaded, journal: Journal, roots: Roots) -> Loaded:
    """The host collector told what boot the journal saw last, so that a restart while nobody watched is an event."""
    before, _ = last_boot(loaded, journal, roots)
    entry = loaded.collectors[_PRESSURE]
    told = entry.options.model_copy(update={"last_boot_id": before})
    return replace(loaded, collectors={**loaded.collectors, _PRESSURE: replace(entry, options=told)})


def reboot_between_runs(loaded: Loaded, journal: Journal, roots: Roots, now_ns: int) -> tuple[Event, ...]:
    """For a soak without a daemon: the restart belongs to the time before the run, not into it."""
    before, now = last_boot(loaded, journal, roots)
    if not before or not now or before == now:
        return ()
    what = "the host was restarted since soakd last ran here"
    return (Event("host.reboot", now_ns, what, Severity.CRITICAL, (), labels(boot_id=now, boot_id_before=before)),)
