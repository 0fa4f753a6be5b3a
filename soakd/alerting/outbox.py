"""What one channel has still to be told. Pure: time in nanoseconds comes in, notices go out.

One entry an alert, so that a flood of changes while the channel is down stays as large as the number of alerts: what
is told is how things stand then. An alert that fired and was resolved in the meantime is still told, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from soakd.model import Alert, AlertState, Labels
from soakd.ports import Notice, Told

MOST_ENTRIES = 10_000
Key = tuple[str, Labels]


@dataclass(slots=True)
class Entry:
    """``changed``: the channel has not been told of how the alert stands. ``told_ns`` is on the monotonic clock."""

    alert: Alert
    memory: str = ""
    changed: bool = True
    told_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as it is put by; when it was told is left out, so that it is told again soon after a restart."""

    alert: Alert
    memory: str
    changed: bool


_KEPT: TypeAdapter[list[Kept]] = TypeAdapter(list[Kept])


class Outbox:
    """``resend_ns`` None: an alert is told when it changes, and not again."""

    def __init__(self, resend_ns: int | None, most: int = MOST_ENTRIES) -> None:
        self._resend_ns = resend_ns
        self._most = most
        self._entries: dict[Key, Entry] = {}
        self.dropped = 0
        self.sent = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """Alerts whose change has not been told."""
        return sum(entry.changed for entry in self._entries.values())

    def put(self, alert: Alert) -> bool:
        """Take a change. False where there is no room: the alert is dropped and counted."""
        entry = self._entries.get(alert.key)
        if entry is not None:
            entry.alert, entry.changed = alert, True
            return True
        if len(self._entries) >= self._most:
            self.dropped += 1
            return False
        self._entries[alert.key] = Entry(alert)
        return True

    def refresh(self, alert: Alert) -> None:
        """New figures of an alert that fires: told with the next notice of it, no reason for one."""
        entry = self._entries.get(alert.key)
        if entry is not None and entry.alert.state is AlertState.FIRING:
            entry.alert = alert

    def settle(self, firing: Sequence[Alert], now_ns: int) -> None:
        """After a restart: entries that fire by the outbox alone are over; alerts it does not know are changes."""
        known = {alert.key: alert for alert in firing}
        for key, entry in self._entries.items():
            if entry.alert.state is AlertState.FIRING and key not in known:
                entry.alert = replace(entry.alert, state=AlertState.RESOLVED, ended_ns=now_ns, over="its rule is gone")
                entry.changed = True
        for key, alert in known.items():
            if key not in self._entries:
                self.put(alert)

    def due(self, now_ns: int) -> tuple[Notice, ...]:
        """What is to be told now: changes, and firing alerts whose last telling is too long ago."""
        return tuple(Notice(e.alert, e.memory) for e in self._entries.values() if e.changed or self._again(e, now_ns))

    def next_ns(self) -> int | None:
        """When something is due next (0: at once), None for never unless something changes."""
        found: int | None = None
        for entry in self._entries.values():
            if entry.changed:
                return 0
            if self._resend_ns is not None:
                at_ns = 0 if entry.told_ns is None else entry.told_ns + self._resend_ns
                found = at_ns if found is None else min(found, at_ns)
        return found

    def _again(self, entry: Entry, now_ns: int) -> bool:
        if self._resend_ns is None:
            return False
        return entry.told_ns is None or now_ns - entry.told_ns >= self._resend_ns

    def told(self, notices: Sequence[Notice], result: Told, now_ns: int) -> None:
        """Take note of what was delivered. What changed in the meantime stays due."""
        for notice in notices:
            key = notice.alert.key
            memory, entry = result.memories.get(key), self._entries.get(key)
            if memory is None or entry is None:
                continue
            self.sent += 1
            entry.memory, entry.told_ns = memory, now_ns
            if notice.alert.state is entry.alert.state and notice.alert.fired_ns == entry.alert.fired_ns:
                entry.changed = False
                if entry.alert.state is AlertState.RESOLVED:
                    del self._entries[key]

    def dump(self) -> object:
        kept = [Kept(e.alert, e.memory, e.changed) for e in self._entries.values()]
        return _KEPT.dump_python(kept, mode="json")

    def load(self, data: object) -> None:
        """Raises ValueError."""
        try:
            found = _KEPT.validate_python(data)
        except ValidationError as error:
            raise ValueError(f"not an outbox: {error}") from None
        for kept in found[: self._most]:
            self._entries[kept.alert.key] = Entry(kept.alert, kept.memory, kept.changed)
