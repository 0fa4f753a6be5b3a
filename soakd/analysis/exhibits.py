"""What of the facts a judgement shows beside its verdict."""

from __future__ import annotations

from soakd.analysis.examine import Examined
from soakd.analysis.series import Evidence, Jump, Segment


def evidence_of(facts: Examined) -> Evidence:
    """The fit where there is one, else jumps and lifetimes alone."""
    if facts.growth is None:
        return Evidence(jumps=_jumps(facts), segments=_segments(facts))
    return _of_growth(facts)


def _jumps(facts: Examined) -> tuple[Jump, ...]:
    return tuple(Jump(j.x, j.size) for j in facts.jumps)


def _segments(facts: Examined) -> tuple[Segment, ...]:
    b = facts.blocks
    return tuple(
        Segment(
            start=float(b.first_x[a]),
            end=float(b.last_x[z - 1]),
            points=int(b.count[a:z].sum()),
            slope=None if slope is None else slope * facts.per_factor,
        )
        for (a, z), slope in zip(facts.lives.spans, facts.segment_slopes, strict=True)
    )


def _of_growth(facts: Examined) -> Evidence:
    g, stairs = facts.growth, facts.staircase
    assert g is not None
    half = g.span / 2
    return Evidence(
        jumps=_jumps(facts),
        segments=_segments(facts),
        tau=g.tau,
        rho=g.rho,
        noise=g.noise,
        block=facts.main.width,
        p_value=facts.p_value,
        judged_from=float(facts.used.first_x[0]),
        judged_to=float(facts.used.last_x[-1]),
        growth=g.slope * g.span,
        jump_rate=stairs.late / half * facts.per_factor if stairs else None,
        jumps_due=stairs.due if stairs else None,
        load_effect=g.load_effect,
        line_x=tuple(float(v) for v in g.x),
        line_y=tuple(float(v) for v in g.fitted),
    )
