"""Fixtures that several folders of tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import settings

from soakd.demo.launch import DemoServer

# on a busy machine an example may take any time
settings.register_profile("soakd", deadline=None)
settings.load_profile("soakd")


@pytest.fixture(scope="session")
def demo_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the generated model is kept for the session."""
    return tmp_path_factory.mktemp("demo")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def llama_server(demo_directory: Path) -> AsyncIterator[DemoServer]:
    """llama.cpp's real server with a tiny Qwen3, one for the session: don't kill it (start your own to do that)."""
    async with DemoServer.start(demo_directory) as server:
        yield server
