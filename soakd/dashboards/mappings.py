"""Codes and unknown readings as words and colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.models import dashboard as model

from soakd.dashboards.influxql import Query, unknown_value
from soakd.model import Kind, State

Mappings = list[model.ValueMap | model.RangeMap | model.RegexMap | model.SpecialValueMap]
NOT_READ = "no reading"
_STATE_COLOURS: Mapping[State, str] = {
    State.UNSUPPORTED: "#8e8e8e",
    State.ABSENT: "#8e8e8e",
    State.NO_PERMISSION: "purple",
    State.TIMEOUT: "dark-orange",
    State.LOST: "dark-red",
}
_WORD_COLOURS: Mapping[str, str] = {
    **dict.fromkeys(("PASS", "ok", "no_leak", "full", "up", "agree", "none", "flat", "D0", "active"), "green"),
    **dict.fromkeys(("FAIL", "leak", "lost", "error", "down", "degraded", "linear", "staircase"), "red"),
    **dict.fromkeys(("INCONCLUSIVE", "inconclusive", "timeout", "unknown", "settling", "sawtooth"), "orange"),
    **dict.fromkeys(("NOT_JUDGED", "unsupported", "absent", "idle"), "#8e8e8e"),
}


def mappings_of(queries: Sequence[Query], *, bad: Mapping[str, str] | None = None) -> Mappings:
    """The words for all codes of the metrics asked for (which must not contradict each other) and for unknown
    readings; ``bad`` gives words of a state their own colours."""
    options: dict[str, model.ValueMappingResult] = {}
    for query in queries:
        if query.metric.kind is Kind.STATE:
            for word, code in query.metric.codes:
                colour = (bad or {}).get(word) or _WORD_COLOURS.get(word, "blue")
                found = model.ValueMappingResult(text=word, color=colour, index=len(options))
                if options.setdefault(str(code), found).text != word:
                    raise ValueError(f"{query.metric.name}: code {code} means something else in another query")
    if any(query.may_be_unknown for query in queries):
        for state, colour in _STATE_COLOURS.items():
            options[str(unknown_value(state))] = model.ValueMappingResult(
                text=state.value.replace("_", " "), color=colour, index=len(options)
            )
    return [model.ValueMap(options=options)] if options else []
