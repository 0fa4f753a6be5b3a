"""Grafana's provisioning files and the compose file: what can be checked without Grafana and Docker's daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.grafana import FOLDER, load, variables

CONFIGS = FOLDER.parent / "configs"
COMPOSE = CONFIGS / "compose"
SECRETS = ("INFLUX_ADMIN_PASSWORD", "INFLUX_ADMIN_TOKEN", "GRAFANA_ADMIN_PASSWORD", "GRAFANA_READER_PASSWORD")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def client() -> list[str]:
    """`docker compose`, or the older `docker-compose`."""
    if shutil.which("docker"):
        answer = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if answer.returncode == 0:
            return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("neither `docker compose` nor docker-compose is installed")


def configured(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*client(), "-f", str(COMPOSE / "docker-compose.yml"), "config"],
        capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"], "HOME": "/tmp", **environment},
    )  # fmt: skip


def test_compose_takes_the_file_and_every_port_is_on_loopback() -> None:
    answer = configured({name: f"secret-{name}" for name in SECRETS})
    assert answer.returncode == 0, answer.stderr
    services = yaml.safe_load(answer.stdout)["services"]
    assert set(services) == {"influxdb", "grafana", "alertmanager"}
    for name, service in services.items():
        assert service["healthcheck"]["test"], name
        for port in service["ports"]:
            host = port.rpartition(":")[0] if isinstance(port, str) else port["host_ip"]
            assert host.startswith("127.0.0.1"), name


@pytest.mark.parametrize("forgotten", SECRETS)
def test_compose_does_not_start_without_a_secret(forgotten: str) -> None:
    answer = configured({name: "x" * 12 for name in SECRETS if name != forgotten})
    assert answer.returncode != 0
    assert "soakd.env" in answer.stderr


def test_no_secret_is_written_into_the_files() -> None:
    environment = read(COMPOSE / "docker-compose.yml")["services"]
    for service in environment.values():
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in ("PASSWORD", "TOKEN")):
                assert str(value).startswith("${"), name
    example = (COMPOSE / "soakd.env.example").read_text()
    given = dict(line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#"))
    assert given == dict.fromkeys(SECRETS, "")


def test_what_is_mounted_is_there() -> None:
    for service in read(COMPOSE / "docker-compose.yml")["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source


def test_grafana_is_told_of_the_database_that_the_mapping_names() -> None:
    (source,) = read(CONFIGS / "grafana/provisioning/datasources/soakd.yaml")["datasources"]
    script = (COMPOSE / "influxdb-init/10-influxql.sh").read_text()
    assert f"--db {source['jsonData']['dbName']} " in script
    assert source["type"] == "influxdb"
    assert source["jsonData"]["version"] == "InfluxQL"
    grafana = read(COMPOSE / "docker-compose.yml")["services"]["grafana"]["environment"]
    for value in (source["url"], source["user"], source["secureJsonData"]["password"]):
        assert value.removeprefix("$") in grafana
    assert f"--username {grafana['SOAKD_INFLUX_USER']} " in script


def test_dashboards_are_looked_for_where_they_are_mounted() -> None:
    (provider,) = read(CONFIGS / "grafana/provisioning/dashboards/soakd.yaml")["providers"]
    volumes = read(COMPOSE / "docker-compose.yml")["services"]["grafana"]["volumes"]
    assert f"../../dashboards:{provider['options']['path']}:ro" in volumes


def test_the_init_script_is_a_shell_script() -> None:
    script = COMPOSE / "influxdb-init/10-influxql.sh"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_alertmanager_takes_its_configuration() -> None:
    path = COMPOSE / "alertmanager/alertmanager.yml"
    assert read(path)["route"]["receiver"] in {r["name"] for r in read(path)["receivers"]}
    if shutil.which("amtool"):
        answer = subprocess.run(["amtool", "check-config", str(path)], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr


def test_the_readme_names_every_dashboard() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.glob("*.json"):
        assert f"`{path.name}`" in readme
        assert variables(load(path))
