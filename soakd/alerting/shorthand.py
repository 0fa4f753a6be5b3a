"""Series in one line, as in Prometheus' rule tests: ``70x9 86+0.5x20 _x5 lostx3``. Pure.

``a+bxn`` is a, then n more, each b higher (``-`` for lower); ``axn`` is a and n more of the same; ``_`` is no reading
at all, ``_xn`` n of them; ``timeout``, ``lost``, ``absent``, ``unsupported`` and ``no_permission`` are readings of that
state, ``lostxn`` n of them.
"""

from __future__ import annotations

import re

from soakd.model import State

Reading = float | State | None
"""A value, a state that is not OK, or None for no reading."""

_MOST = 1_000_000
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_TOKEN = re.compile(
    rf"(?P<start>{_NUMBER})(?:(?P<step>[-+]\d+(?:\.\d+)?(?:e[-+]?\d+)?))?(?:x(?P<n>\d+))?", re.IGNORECASE
)
_WORD = re.compile(r"(?P<word>_|[a-z][a-z_]*?)(?:x(?P<n>\d+))?")
_STATES = {state.value: state for state in State if state is not State.OK}


def expand(text: str) -> list[Reading]:
    """Raises ValueError that names the part that is wrong."""
    found: list[Reading] = []
    for token in text.split():
        found += _part(token)
        if len(found) > _MOST:
            raise ValueError(f"more than {_MOST} readings")
    return found


def _part(token: str) -> list[Reading]:
    number = _TOKEN.fullmatch(token)
    if number:
        count = int(number["n"] or 0)
        if count > _MOST or (number["step"] and number["n"] is None):
            raise ValueError(f"{token!r}: give a number of steps, as in 0+1x10")
        start, step = float(number["start"]), float(number["step"] or 0)
        return [start + step * i for i in range(count + 1)]
    word = _WORD.fullmatch(token)
    if word and (word["word"] == "_" or word["word"] in _STATES):
        count = int(word["n"] or 1)
        if count <= _MOST:
            return [None if word["word"] == "_" else _STATES[word["word"]]] * count
    raise ValueError(f"{token!r} is no part of a series; write 70x9, 0+1x10, _x3 or lostx5")
