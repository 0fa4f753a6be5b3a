from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from soakd.clock import RealClock
from soakd.demo.launch import DemoServer
from soakd.errors import ConfigError
from soakd.model import TargetInfo
from soakd.ports import CollectorContext, Roots
from soakd.preflight.check import CheckState, Judgement
from soakd.preflight.checks_server import flag_value
from soakd.preflight.facts import Fact, Facts
from soakd.preflight.profile import Profile, load_profile
from soakd.preflight.reading_hardware import parse_acs, read_driver, read_gpus
from soakd.preflight.reading_host import read_host
from soakd.preflight.reading_server import read_server
from soakd.preflight.run import CHECKS, judge_all, refuse_unknown_waivers, run_preflight
from soakd.targets.access import Access
from soakd.targets.discovery import identify
from tests.support.preflight_machine import PID, acs_config, add_gpu, gpu_path, machine, replies
from tests.support.proc_tree import HandClock, context, roots, write

PROFILES = Path(__file__).parents[2] / "configs/preflight"
ARTICLE = load_profile(PROFILES / "article-v100.yaml")
TARGET = TargetInfo("http://127.0.0.1:8000", "vllm", "qwen", pid=PID)
CLOCK = (Fact(0.002, "chronyc tracking"), Fact(True, "chronyc tracking"))
ANSWERS = (Fact(200, "GET /health"), Fact(True, "one generation"), Fact("0.4.2+cu117", "GET /version"))
UNIT = (Fact(True, "systemctl"), Fact(0, "journalctl"))


def facts(found: Roots, *, busy: int = 95, target: TargetInfo | None = TARGET) -> Facts:
    gpus, why = read_gpus(found, replies("fast", busy=busy), replies("slow"))
    host = replace(read_host(found, CLOCK), shm=Fact(4 * 2**30, "statvfs"))
    return Facts(gpus, why, read_driver(found), host, read_server(found, target, ANSWERS, UNIT))


def judged(found: Facts, profile: Profile = ARTICLE) -> dict[str, Judgement]:
    return {r.id: r.judgement for r in judge_all(profile, found).results}


def test_a_machine_as_the_article_wants_it_passes_every_check(tmp_path: Path) -> None:
    report = judge_all(ARTICLE, facts(machine(tmp_path)))
    assert {r.id: r.judgement for r in report.results if r.judgement.state is not CheckState.OK} == {}
    assert report.exit_code == 0
    assert len(report.results) == len(CHECKS)


def gpu_file(index: int, name: str, text: str | bytes) -> Callable[[Roots], None]:
    return lambda found: write(gpu_path(found, index), {name: text})


def proc_file(name: str, text: str) -> Callable[[Roots], None]:
    return lambda found: write(found.proc, {name: text})


OK, WRONG, UNKNOWN, NOT_APPLICABLE = CheckState.OK, CheckState.WRONG, CheckState.UNKNOWN, CheckState.NOT_APPLICABLE
SPOILED: list[tuple[str, Callable[[Roots], None], CheckState, str]] = [
    ("link.width", gpu_file(2, "current_link_width", "8\n"), WRONG, "x8"),
    ("link.width", gpu_file(2, "current_link_width", "Unknown\n"), UNKNOWN, ""),
    ("link.speed", gpu_file(1, "current_link_speed", "2.5 GT/s PCIe\n"), WRONG, "2.5 GT/s"),
    ("link.speed", gpu_file(1, "max_link_speed", "5.0 GT/s PCIe\n"), WRONG, "5.0 GT/s"),
    ("link.speed", gpu_file(1, "power/runtime_status", "suspended\n"), UNKNOWN, ""),
    ("pci.runtime_status", gpu_file(0, "power/runtime_status", "suspended\n"), WRONG, "suspended"),
    ("pci.power_control", gpu_file(0, "power/control", "auto\n"), WRONG, "auto"),
    ("pci.subsystem_vendor", gpu_file(0, "subsystem_vendor", "0x10de\n"), WRONG, "0x10de"),
    ("driver.override", gpu_file(0, "driver_override", "vfio-pci\n"), WRONG, "vfio-pci"),
    ("driver.bound", lambda f: (gpu_path(f, 0) / "driver").unlink(), WRONG, "none"),
    ("pci.acs", lambda f: write(gpu_path(f, 3).parent, {"config": acs_config(0x1D)}), WRONG, "yes"),
    ("pci.acs", lambda f: write(gpu_path(f, 3).parent, {"config": bytes(64)}), UNKNOWN, ""),
    ("pci.aspm", lambda f: write(f.sys, {"module/pcie_aspm/parameters/policy": "[default] x\n"}), WRONG, "default"),
    ("gpu.count", lambda f: add_gpu(f.sys, 4), WRONG, "5"),
    ("driver.msi", proc_file("driver/nvidia/params", "EnableMSI: 0\n"), WRONG, "no"),
    ("driver.memory_init", proc_file("driver/nvidia/params", "EnableMSI: 1\n"), UNKNOWN, ""),
    ("driver.version", proc_file("driver/nvidia/version", "Kernel Module  470.82.01  x\n"), WRONG, "470.82.01"),
    ("driver.uvm", proc_file("modules", "nvidia 1 1 - Live 0x0\n"), WRONG, "no"),
    ("host.ram", proc_file("meminfo", "MemTotal: 65536000 kB\n"), WRONG, "62.5 GiB"),
    ("host.huge_pages", proc_file("meminfo", "HugePages_Total: 9\nHugepagesize: 1048576 kB\n"), UNKNOWN, ""),
    ("host.hugetlbfs", proc_file("mounts", "none / ext4 rw 0 0\n"), WRONG, "no"),
    ("host.swappiness", proc_file("sys/vm/swappiness", "60\n"), WRONG, "60"),
    ("host.somaxconn", proc_file("sys/net/core/somaxconn", "4096\n"), WRONG, "4096"),
    ("host.tcp_fin_timeout", proc_file("sys/net/ipv4/tcp_fin_timeout", "60\n"), WRONG, "60"),
    ("host.intel_idle", proc_file("cpuinfo", "vendor_id : AuthenticAMD\n"), NOT_APPLICABLE, "AuthenticAMD"),
    ("host.intel_idle", proc_file("sys/kernel/osrelease", "9.9\n"), UNKNOWN, ""),
    ("server.open_files", proc_file(f"{PID}/limits", "Max open files  1024  1024 files\n"), WRONG, "1024"),
    ("server.flags", proc_file(f"{PID}/cmdline", "v\0--tensor-parallel-size\x002\0"), WRONG, "size 2"),
    ("server.torch", proc_file(f"{PID}/root/venv/torch/version.py", "__version__ = '2.4.0'\n"), WRONG, "2.4.0"),
    ("server.cuda", proc_file(f"{PID}/maps", "nothing\n"), UNKNOWN, ""),
    ("gpu.order", proc_file(f"{PID}/environ", "CUDA_VISIBLE_DEVICES=1,0\0"), WRONG, "CUDA_DEVICE_ORDER=unset"),
    ("gpu.order", proc_file(f"{PID}/environ", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-0\0"), OK, "unset"),
    ("model.complete", lambda f: (f.proc / f"{PID}/root/models/qwen/2.st").unlink(), WRONG, "1 missing: 2.st"),
    ("model.max_position", proc_file(f"{PID}/root/models/qwen/config.json", "{}"), UNKNOWN, ""),
    ("server.memory_limit", lambda f: write(f.sys, {"fs/cgroup/system.slice/llm.service/memory.max": "max\n"}),
     WRONG, "no limit"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "spoil", "state", "found"), SPOILED, ids=[f"{s[0]}-{s[3]}" for s in SPOILED])
def test_each_check_sees_its_own_fault(
    tmp_path: Path, check: str, spoil: Callable[[Roots], None], state: CheckState, found: str
) -> None:
    tree = machine(tmp_path)
    spoil(tree)
    judgement = judged(facts(tree))[check]
    assert judgement.state is state
    assert found in judgement.found
    assert judgement.why
    if state is CheckState.WRONG:
        assert judgement.fix


def test_the_faulty_card_is_named(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    write(gpu_path(tree, 2), {"current_link_width": "8\n"})
    judgement = judged(facts(tree))["link.width"]
    assert "0000:3d:00.0 x8" in judgement.found
    assert judgement.why.startswith("0000:3d:00.0:")


def test_a_slow_link_on_an_idle_card_is_unknown_and_not_wrong(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    write(gpu_path(tree, 0), {"current_link_speed": "2.5 GT/s PCIe\n"})
    judgement = judged(facts(tree, busy=0))["link.speed"]
    assert judgement.state is CheckState.UNKNOWN
    assert "under load" in judgement.why


def test_without_nvml_what_it_tells_is_unknown(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    gpus, why = read_gpus(tree, (), ())
    found = replace(facts(tree), gpus=gpus, gpus_why=why)
    states = {name: judged(found)[name].state for name in ("gpu.memory", "gpu.ecc_current", "gpu.compute_mode")}
    assert set(states.values()) == {CheckState.UNKNOWN}


def test_a_machine_without_gpu_wants_no_driver_unless_the_profile_says_so(tmp_path: Path) -> None:
    empty = facts(roots(tmp_path))
    default = judged(empty, load_profile(PROFILES / "default.yaml"))
    assert default["driver.uvm"].state is CheckState.NOT_APPLICABLE
    article = judged(empty)
    assert article["gpu.count"].state is CheckState.WRONG
    assert article["driver.uvm"].state is CheckState.UNKNOWN


def test_without_a_target_its_checks_are_unknown(tmp_path: Path) -> None:
    report = judge_all(ARTICLE, facts(machine(tmp_path), target=None))
    servers = [r.judgement.state for r in report.results if r.group in ("server", "model")]
    assert set(servers) == {CheckState.UNKNOWN}
    assert report.exit_code == 3


def test_a_target_elsewhere_is_judged_by_what_it_answers_only(tmp_path: Path) -> None:
    far = judged(facts(machine(tmp_path), target=replace(TARGET, local=False)))
    assert far["server.health"].state is CheckState.OK
    assert far["server.open_files"].state is CheckState.UNKNOWN
    assert "another host" in far["server.open_files"].why


def test_a_waived_check_keeps_its_finding_and_changes_the_exit_code(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    write(tree.proc, {"sys/vm/swappiness": "60\n"})
    waiving = ARTICLE.model_copy(update={"waived": {"host.swappiness": "no swap here", "host.ram": "fine"}})
    report = judge_all(waiving, facts(tree))
    by_id = {r.id: r.judgement for r in report.results}
    assert (by_id["host.swappiness"].state, by_id["host.swappiness"].found) == (CheckState.WAIVED, "60")
    assert "no swap here" in by_id["host.swappiness"].why
    assert by_id["host.ram"].state is CheckState.OK, "what holds needs no waiver"
    assert report.exit_code == 0
    assert judge_all(ARTICLE, facts(tree)).exit_code == 1


def test_waiving_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"waived\.host\.rma"):
        refuse_unknown_waivers(Profile(name="x", waived={"host.rma": "typo"}))


def test_the_json_contract(tmp_path: Path) -> None:
    data = json.loads(json.dumps(judge_all(ARTICLE, facts(machine(tmp_path))).as_json()))
    assert data["profile"] == "article-v100"
    assert set(data["checks"][0]) == {"id", "group", "state", "found", "wanted", "why", "fix"}
    assert data["checks"][0] | {"why": ""} == {
        "id": "link.width", "group": "link", "state": "ok",
        "found": "x16", "wanted": "at least x16", "why": "", "fix": "",
    }  # fmt: skip


def test_no_check_reads_a_secret(tmp_path: Path) -> None:
    assert "SECRET" not in repr(facts(machine(tmp_path)))


def test_ids_are_unique_and_profiles_load() -> None:
    assert len({c.id for c in CHECKS}) == len(CHECKS)
    assert {load_profile(path).name for path in PROFILES.glob("*.yaml")} == {"article-v100", "default"}


def test_a_wrong_profile_names_its_line(tmp_path: Path) -> None:
    write(tmp_path, {"p.yaml": "name: x\nhost:\n  ramm: 1GiB\n"})
    with pytest.raises(ConfigError, match=r"p\.yaml:3: host\.ramm"):
        load_profile(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(("a", "--x", "1"), "1"), (("a", "--x=2"), "2"), (("--x", "--y"), ""), (("--x",), ""), (("--xy", "1"), None),
     (("--x", "1", "--x", "3"), "3")],
)  # fmt: skip
def test_flags_in_both_forms(arguments: tuple[str, ...], value: str | None) -> None:
    assert flag_value(arguments, "--x") == value


def test_acs_in_hostile_configuration_spaces() -> None:
    assert parse_acs(acs_config(0x1C)) is True
    assert parse_acs(acs_config(0x01)) is False
    for raw in (b"", bytes(4096), b"\xff" * 4096, bytes(0x100) + b"\x01\x00\x01\x10" * 900):
        assert parse_acs(raw) is None


@pytest.mark.integration
async def test_against_a_real_server_on_this_machine(tmp_path: Path) -> None:
    async with DemoServer.start(tmp_path) as server:
        access, clock = Access.to(server.url), RealClock()
        target = await identify(access, clock)
        profile = load_profile(PROFILES / "default.yaml")
        report = await run_preflight(profile, CollectorContext(clock, Roots(), None, target), access)
        states = {r.id: r.judgement.state for r in report.results}
        assert states["server.health"] is CheckState.OK
        assert states["server.generation"] is CheckState.OK
        assert states["server.open_files"] is not CheckState.UNKNOWN
    gone = await run_preflight(profile, context(Roots(), HandClock(), target), access)
    assert {r.id: r.judgement.state for r in gone.results}["server.health"] is CheckState.UNKNOWN
    assert gone.exit_code in (1, 3)
