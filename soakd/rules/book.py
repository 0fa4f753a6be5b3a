"""What a condition remembers of each series: bounded, forgotten when a series is gone, plain JSON when put by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from soakd.model import Labels

V = TypeVar("V")
MOST_SERIES = 4096
FORGET_NS = 24 * 3600 * 1_000_000_000


class Book(Generic[V]):
    """Values by labels. A series beyond the bound is left out and counted; those not touched for a day are dropped."""

    __slots__ = ("_at", "_swept_ns", "_values", "left_out")

    def __init__(self) -> None:
        self._values: dict[Labels, V] = {}
        self._at: dict[Labels, int] = {}
        self._swept_ns = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[tuple[Labels, V]]:
        return iter(tuple(self._values.items()))

    def get(self, key: Labels) -> V | None:
        return self._values.get(key)

    def put(self, key: Labels, value: V, at_ns: int) -> bool:
        """False where there is no room for another series."""
        if key not in self._values and len(self._values) >= MOST_SERIES:
            self.left_out += 1
            return False
        self._values[key] = value
        self._at[key] = at_ns
        return True

    def drop(self, key: Labels) -> None:
        self._values.pop(key, None)
        self._at.pop(key, None)

    def clear(self) -> None:
        self._values.clear()
        self._at.clear()

    def sweep(self, now_ns: int) -> None:
        """Forget what was not touched for a day; looks once a minute."""
        if now_ns - self._swept_ns < 60_000_000_000:
            return
        self._swept_ns = now_ns
        for key in [k for k, at in self._at.items() if now_ns - at > FORGET_NS]:
            self.drop(key)

    def dump(self, adapter: TypeAdapter[V]) -> object:
        return [
            [list(key), self._at[key], adapter.dump_python(value, mode="json")] for key, value in self._values.items()
        ]

    @classmethod
    def load(cls, data: object, adapter: TypeAdapter[V]) -> Book[V]:
        """Raises ValueError."""
        book: Book[V] = cls()
        if not isinstance(data, list):
            raise ValueError("not the state of a rule")
        try:
            for key, at_ns, value in data:
                found = tuple((str(n), str(v)) for n, v in key)
                book.put(found, adapter.validate_python(value), int(at_ns))
        except (ValidationError, TypeError) as error:
            raise ValueError(f"not the state of a rule: {error}") from None
        return book
