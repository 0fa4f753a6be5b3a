"""The wheel alone, in a fresh environment: nothing of it may depend on the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from soakd import __version__

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


@pytest.fixture(scope="module")
def soakd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command. Its dependencies are those of this environment, found through a .pth file: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", folder, REPOSITORY],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "No matching distribution found for hatchling" in built.stdout + built.stderr:
        pytest.skip("no network: the build can't get hatchling")
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("soakd-*.whl")
    fresh = folder / "venv"
    venv.create(fresh, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(fresh), "platbase": str(fresh)}))
    installed = run(
        sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--no-deps", "--no-index",
        "--disable-pip-version-check", wheel, cwd=folder,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    assert (packages / "soakd").is_dir()
    # after the wheel's own place, so that the editable install of this environment can't stand in for it
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return fresh / "bin" / "soakd"


def test_the_wheel_tells_its_version_and_is_not_the_repository(soakd: Path, tmp_path: Path) -> None:
    told = run(soakd, "--version", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (0, f"soakd {__version__}\n"), told.stderr
    where = run(soakd.parent / "python", "-c", "import soakd; print(soakd.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(soakd.parents[1])


def test_init_writes_configurations_that_check_config_takes(soakd: Path, tmp_path: Path) -> None:
    made = run(soakd, "init", "made", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    for folder in ("configs/profiles", "configs/limits", "configs/examples", "alerts", "dashboards"):
        assert any((tmp_path / "made" / folder).iterdir()), folder
    for example in sorted((tmp_path / "made/configs/examples").glob("*.yaml")):
        checked = run(soakd, "check-config", example, cwd=tmp_path)
        assert checked.returncode == 0, checked.stderr


def test_the_wheel_alone_starts_a_run(soakd: Path, tmp_path: Path) -> None:
    refused = run(soakd, "run", "--target", "http://127.0.0.1:1", "--json", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "connection refused" in refused.stderr
    seen = run(soakd, "collect", "--json", cwd=tmp_path)
    assert seen.returncode == 0, seen.stderr
    assert json.loads(seen.stdout)["collectors"]
