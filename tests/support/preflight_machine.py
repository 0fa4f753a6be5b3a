"""A made-up machine that holds all that the article's profile wants: four V100, their driver, and a vLLM server."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from soakd.model import GpuIdentity, State
from soakd.ports import GpuReply, NvmlAnswer, Roots
from tests.support.proc_tree import START_NS, add_process, roots, write

GIB = 2**30
PID = 100
ARGUMENTS = (
    "/usr/bin/python3", "/usr/bin/vllm", "serve", "--model", "/models/qwen", "--tensor-parallel-size", "4",
    "--max-model-len=131072", "--max-num-seqs", "256",
)  # fmt: skip


def bdf(index: int) -> str:
    return f"0000:{index + 0x3B:02x}:00.0"


def acs_config(control: int) -> bytes:
    """A configuration space with an AER capability first and ACS behind it."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x5F, control)
    return bytes(space)


def machine(tmp_path: Path) -> Roots:
    found = roots(tmp_path)
    (found.dev / "shm").mkdir()
    write(found.proc, {
        "meminfo": f"MemTotal: {128 * 2**20} kB\nHugePages_Total: 2048\nHugepagesize: 2048 kB\n",
        "mounts": "none /dev/hugepages hugetlbfs rw 0 0\n", "cpuinfo": "vendor_id\t: GenuineIntel\n",
        "sys/vm/swappiness": "1\n", "sys/net/core/somaxconn": "65535\n", "sys/net/ipv4/tcp_fin_timeout": "30\n",
        "sys/kernel/osrelease": "5.15.0-generic\n", "modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 - Live 0x0\n",
        "driver/nvidia/params": "EnableMSI: 1\nInitializeSystemMemoryAllocations: 0\nRegistryDwords: \"\"\n",
        "driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  515.65.01  Wed Jul 20 2022\n",
    })  # fmt: skip
    write(found.etc.parent, {"boot/config-5.15.0-generic": "CONFIG_X=y\nCONFIG_INTEL_IDLE=y\n"})
    write(found.sys, {"module/pcie_aspm/parameters/policy": "default [performance] powersave\n"})
    for index in range(4):
        add_gpu(found.sys, index)
    add_server(found)
    return found


def add_gpu(sys: Path, index: int) -> None:
    bridge = f"0000:{index + 0x80:02x}:00.0"
    device = f"devices/pci0000:{index:02x}/{bridge}/{bdf(index)}/"
    write(sys, {
        f"{device}../config": acs_config(0),
        f"{device}vendor": "0x10de\n", f"{device}class": "0x030200\n", f"{device}subsystem_vendor": "0x1028\n",
        f"{device}current_link_speed": "8.0 GT/s PCIe\n", f"{device}current_link_width": "16\n",
        f"{device}max_link_speed": "8.0 GT/s PCIe\n", f"{device}max_link_width": "16\n",
        f"{device}driver_override": "(null)\n", f"{device}power_state": "D0\n",
        f"{device}power/runtime_status": "active\n", f"{device}power/control": "on\n",
    })  # fmt: skip
    drivers, listed = sys / "bus/pci/drivers/nvidia", sys / "bus/pci/devices"
    drivers.mkdir(parents=True, exist_ok=True)
    listed.mkdir(parents=True, exist_ok=True)
    (sys / device / "driver").symlink_to(drivers)
    (listed / bdf(index)).symlink_to(sys / device)
    (listed / bridge).symlink_to((sys / device).parent)


def gpu_path(found: Roots, index: int) -> Path:
    return (found.sys / "bus/pci/devices" / bdf(index)).resolve()


def add_server(found: Roots) -> None:
    add_process(found.proc, PID, "vllm", arguments=ARGUMENTS)
    write(found.proc / str(PID), {
        "limits": "Max open files            65536                65536                files\n",
        "environ": "SECRET=x\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0CUDA_VISIBLE_DEVICES=0,1,2,3\0",
        "maps": "7f00-7f01 r-xp 0 00:00 1  /venv/torch/lib/libtorch_cuda.so\n",
        "root/venv/torch/version.py": "__version__ = '2.1.0+cu117'\ncuda: Optional[str] = '11.7'\n",
        "root/models/qwen/config.json": json.dumps({"text_config": {"max_position_embeddings": 131072}}),
        "root/models/qwen/model.safetensors.index.json": json.dumps({"weight_map": {"a": "1.st", "b": "2.st"}}),
        "root/models/qwen/1.st": "x", "root/models/qwen/2.st": "x",
    })  # fmt: skip
    write(found.sys / "fs/cgroup/system.slice/llm.service", {"memory.max": str(100 * GIB) + "\n"})


def replies(tier: str, *, busy: int = 95) -> tuple[GpuReply, ...]:
    """NVML's answers of the four cards."""
    fast = {
        "utilization": {"gpu": busy, "memory": 1}, "DEV_ECC_DBE_AGG_TOTAL": 0,
        "memory": {"version": 2, "total": int(31.75 * GIB), "used": 0, "free": 0, "reserved": 0},
    }  # fmt: skip
    slow: dict[str, object] = {"compute_mode": 3, "ecc_mode": {"current": 1, "pending": 1}}
    answers = {key: NvmlAnswer(0, value) for key, value in (fast if tier == "fast" else slow).items()}
    return tuple(
        GpuReply(GpuIdentity(f"GPU-{i}", bdf(i), str(i), "Tesla V100", i), State.OK, START_NS, answers)
        for i in range(4)
    )
