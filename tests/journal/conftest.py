"""A journal in a directory of its own, and readings to put into it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from soakd.journal import Journal


@pytest_asyncio.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal.open(tmp_path)
    yield opened
    await opened.close()
