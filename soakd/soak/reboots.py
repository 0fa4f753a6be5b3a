"""A restart of the host, told by its boot id: what ended a run that nothing else accounts for."""

from __future__ import annotations

from soakd.journal.reader import JournalReader
from soakd.model import Event, Severity, labels
from soakd.soak.gather import Window

KIND = "host.reboot"


def host_reboot(reader: JournalReader, window: Window, boot_id: str, boot_id_end: str) -> Event | None:
    """The restart that ended the run, as an event at the run's end. None without proof: ``boot_id_end`` is unknown
    for a run that was killed, and then the restart is what the journal says of the time after it.

    A restart that was seen within the run is an event of it already.
    """
    if not boot_id or reader.events(run_id=window.run_id, kind=KIND):
        return None
    after = boot_id_end or _next_boot(reader, window, boot_id)
    if not after or after == boot_id:
        return None
    attrs = labels(boot_id=after, boot_id_before=boot_id)
    what = f"the host was restarted: boot id {boot_id[:8]} at the start of the run, {after[:8]} after it"
    return Event(KIND, window.end_ns, what, Severity.CRITICAL, (), attrs)


def _next_boot(reader: JournalReader, window: Window, boot_id: str) -> str:
    for event in reader.events(from_ns=window.start_ns, kind=KIND):
        attrs = dict(event.attrs)
        if attrs.get("boot_id_before") == boot_id:
            return attrs.get("boot_id", "")
    return ""
