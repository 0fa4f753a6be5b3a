"""Packs columns of numbers, bit-exact, for sealed chunks and roll-ups. Pure.

Whole numbers (times, commits, and values that are whole, or whole after a shift of the decimal point) are stored as
deltas less the smallest delta, divided by what divides all of them, cut to the bytes needed and laid out byte plane by
byte plane. Other values are XORed with their predecessor and laid out the same way. The result goes through deflate.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soakd.journal.records import Float64s, Int64s

_VERSION = 1
_LEVEL = 6
_INT_HEAD = struct.Struct("<qqQB")
_WHOLE, _XOR = 0xF0, 0xFF
_MAX_WHOLE = float(2**53)
_SCALES = (0, 1, 2, 3, 4, 6)

UInt8s = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Rows:
    """Readings of one series in order of commit; ``values`` is NaN where ``states`` is not 0 (OK)."""

    commits: Int64s
    at_ns: Int64s
    states: UInt8s
    values: Float64s

    def __len__(self) -> int:
        return len(self.at_ns)

    def where(self, mask: npt.NDArray[np.bool_] | Int64s) -> Rows:
        return Rows(self.commits[mask], self.at_ns[mask], self.states[mask], self.values[mask])


def join_rows(parts: list[Rows]) -> Rows:
    if not parts:
        empty = np.empty(0, np.int64)
        return Rows(empty, empty, np.empty(0, np.uint8), np.empty(0, np.float64))
    return Rows(
        np.concatenate([p.commits for p in parts]),
        np.concatenate([p.at_ns for p in parts]),
        np.concatenate([p.states for p in parts]),
        np.concatenate([p.values for p in parts]),
    )


def encode_rows(rows: Rows) -> bytes:
    """Pack at least one row."""
    known = rows.states == 0
    packer = Packer()
    packer.whole(rows.commits)
    packer.whole(rows.at_ns)
    packer.whole(rows.states.astype(np.int64))
    if known.any():
        packer.floats(rows.values[known])
    return packer.done()


def decode_rows(data: bytes, count: int) -> Rows:
    """Raises ValueError for data that is not a chunk of ``count`` rows."""
    unpacker = Unpacker(data)
    commits, at_ns = unpacker.whole(count), unpacker.whole(count)
    states = unpacker.whole(count).astype(np.uint8)
    values = np.full(count, np.nan)
    known = states == 0
    if known.any():
        values[known] = unpacker.floats(int(known.sum()))
    return Rows(commits, at_ns, states, values)


class Packer:
    """Collects columns of at least one number each; ``done`` gives the packed bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def whole(self, numbers: Int64s) -> None:
        deltas = np.diff(numbers)
        base = int(deltas.min()) if len(deltas) else 0
        rest = (deltas - base).astype(np.uint64)
        divisor = int(np.gcd.reduce(rest)) if len(rest) else 0
        if divisor > 1:
            rest = rest // np.uint64(divisor)
        self._planes(_INT_HEAD.pack(int(numbers[0]), base, divisor, _width(rest)), rest)

    def floats(self, numbers: Float64s) -> None:
        scaled = _as_whole(numbers)
        if scaled is not None:
            self._parts.append(bytes([_WHOLE | scaled[0]]))
            self.whole(scaled[1])
            return
        bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64)
        crossed = bits.copy()
        crossed[1:] ^= bits[:-1]
        self._planes(bytes([_XOR, _width(crossed)]), crossed)

    def done(self) -> bytes:
        return bytes([_VERSION]) + zlib.compress(b"".join(self._parts), _LEVEL)

    def _planes(self, head: bytes, numbers: npt.NDArray[np.uint64]) -> None:
        width = head[-1]
        planes = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        self._parts += [head, np.ascontiguousarray(planes.T).tobytes()]


class Unpacker:
    """The reverse: columns in the order they were packed."""

    def __init__(self, data: bytes) -> None:
        if not data or data[0] != _VERSION:
            raise ValueError("packed by a newer soakd, or damaged")
        try:
            self._data = zlib.decompress(data[1:])
        except zlib.error as error:
            raise ValueError(f"damaged: {error}") from None
        self._at = 0

    def whole(self, count: int) -> Int64s:
        first, base, divisor, width = _INT_HEAD.unpack_from(self._data, self._at)
        self._at += _INT_HEAD.size
        rest = self._planes(count - 1, width)
        if divisor > 1:
            rest = rest * np.uint64(divisor)
        numbers = np.empty(count, np.int64)
        numbers[0] = first
        numbers[1:] = first + np.cumsum(rest.astype(np.int64) + base)
        return numbers

    def floats(self, count: int) -> Float64s:
        coding = self._data[self._at]
        self._at += 1
        if coding != _XOR:
            whole = self.whole(count).astype(np.float64)
            exponent = coding & 0x0F
            return whole / 10.0**exponent if exponent else whole
        width = self._data[self._at]
        self._at += 1
        return np.bitwise_xor.accumulate(self._planes(count, width)).view(np.float64)

    def _planes(self, count: int, width: int) -> npt.NDArray[np.uint64]:
        size = count * width
        if self._at + size > len(self._data):
            raise ValueError("damaged: too short")
        raw = np.frombuffer(self._data, np.uint8, size, self._at).reshape(width, count)
        self._at += size
        numbers = np.zeros((count, 8), np.uint8)
        numbers[:, :width] = raw.T
        return numbers.view("<u8").reshape(count).astype(np.uint64)


def _width(numbers: npt.NDArray[np.uint64]) -> int:
    return (int(numbers.max()).bit_length() + 7) // 8 if len(numbers) else 0


def _as_whole(numbers: Float64s) -> tuple[int, Int64s] | None:
    """The power of ten and the whole numbers that give exactly these bits again, if there are any."""
    if not np.isfinite(numbers).all() or np.abs(numbers).max() >= _MAX_WHOLE:
        return None
    bits = numbers.view(np.int64)
    for exponent in _SCALES:
        scaled = np.rint(numbers * 10.0**exponent)
        if np.abs(scaled).max() >= _MAX_WHOLE:
            return None
        whole = scaled.astype(np.int64)
        back = whole.astype(np.float64)
        if exponent:
            back = back / 10.0**exponent
        if np.array_equal(back.view(np.int64), bits):
            return exponent, whole
    return None
