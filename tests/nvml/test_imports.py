"""Eight workers run on a full server: none may load what it does not need."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_HEAVY = ("numpy", "scipy", "orjson", "pydantic", "aiohttp", "structlog", "asyncio", "dataclasses", "soakd.model")


def loaded(*modules: str) -> set[str]:
    code = f"import json, sys; import {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    return set(json.loads(out.stdout))


@pytest.mark.parametrize("module", ["soakd.nvml.worker", "soakd.nvml.nvml_device", "soakd.nvml.replay"])
def test_a_worker_stays_small(module: str) -> None:
    assert loaded("soakd.nvml.worker", module) & set(_HEAVY) == set()


def test_the_collectors_load_neither_the_log_nor_the_statistics() -> None:
    kinds = ("gpu_memory", "gpu_ecc", "gpu_thermal", "gpu_power_clocks", "pcie_link", "pcie_aer", "pcie_power", "xid")
    found = loaded("soakd.nvml.pool", *(f"soakd.collectors.{kind}" for kind in kinds))
    assert found & {"numpy", "scipy", "structlog", "apscheduler", "uvloop", "typer", "aiohttp", "pynvml"} == set()
