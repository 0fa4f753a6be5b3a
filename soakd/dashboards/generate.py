"""All dashboards as the JSON that Grafana reads."""

from __future__ import annotations

import json
from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from soakd.dashboards import comparison, fleet, gpu_health, leak_hunt, soak_run
from soakd.dashboards.board import Board
from soakd.metrics import Catalogue


def boards(catalogue: Catalogue) -> tuple[Board, ...]:
    """Raises ValueError where one asks for a metric or label that the catalogue does not have."""
    makers = (fleet.board, soak_run.board, gpu_health.board, leak_hunt.board, comparison.board)
    return tuple(make(catalogue) for make in makers)


def documents(catalogue: Catalogue) -> Mapping[str, str]:
    """File name to text; the same catalogue always gives the same text."""
    return {
        f"{board.slug.removeprefix('soakd-')}.json": json.dumps(
            board.build(), cls=JSONEncoder, indent=2, sort_keys=True
        )
        + "\n"
        for board in boards(catalogue)
    }
