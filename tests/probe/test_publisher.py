from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import soakd.probe
from soakd.probe.placing import open_folder, replace_file, sweep, usual_folder
from soakd.probe.publisher import Publisher, Settings
from soakd.probe.record import FILE_NAME, ProcessRecord, decode, encode
from tests.support.fake_torch import MIB, FakeCuda, FakeTorch, nested


def publisher(folder: Path, torch: Any, visible: str = "") -> Publisher:
    return Publisher(Settings(str(folder), 1.0, visible), {"torch": torch} if torch is not None else {})


def published(folder: Path) -> ProcessRecord:
    (path,) = [p for p in folder.iterdir() if FILE_NAME.fullmatch(p.name)]
    return decode(path.read_bytes())


def test_what_the_allocator_holds_is_published(tmp_path: Path) -> None:
    cuda = FakeCuda([nested(60 * MIB, 100 * MIB, 25 * MIB, retries=2, ooms=1)], ["aaaa-bbbb"])
    publisher(tmp_path, FakeTorch(cuda)).publish()
    record = published(tmp_path)
    assert (record.pid, record.cuda_ready, record.torch, record.sequence) == (os.getpid(), True, "2.11.0", 1)
    (device,) = record.devices
    assert device.uuid == "GPU-aaaa-bbbb"
    assert device.stats["reserved_bytes.all.current"] == 100 * MIB
    assert device.stats["inactive_split_bytes.all.current"] == 25 * MIB
    assert device.stats["allocated_bytes.small_pool.current"] == MIB
    assert (device.stats["num_alloc_retries"], device.stats["num_ooms"]) == (2, 1)
    assert record.start_ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def test_cuda_is_never_initialised(tmp_path: Path) -> None:
    cuda = FakeCuda([nested(MIB, 2 * MIB, 0)], ready=False)
    publisher(tmp_path, FakeTorch(cuda)).publish()
    assert cuda.calls == []
    assert not published(tmp_path).cuda_ready


@pytest.mark.parametrize("torch", [None, object()])
def test_without_torch_or_with_half_of_it_there_are_no_devices(tmp_path: Path, torch: object) -> None:
    publisher(tmp_path, torch).publish()
    assert published(tmp_path).devices == ()


def test_a_device_never_used_is_left_out_and_one_without_statistics_says_so(tmp_path: Path) -> None:
    devices: list[dict[str, Any] | Exception] = [
        nested(0, 0, 0),
        RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats"),
    ]
    publisher(tmp_path, FakeTorch(FakeCuda(devices, ["a", "b"]))).publish()
    (device,) = published(tmp_path).devices
    assert (device.index, device.stats) == (1, {})
    assert "does not yet support" in device.problem


def test_an_old_torch_gets_its_uuid_from_the_environment(tmp_path: Path) -> None:
    stats = nested(MIB, 2 * MIB, 0)
    del stats["requested_bytes"]
    publisher(tmp_path, FakeTorch(FakeCuda([stats])), "GPU-1,GPU-2").publish()
    (device,) = published(tmp_path).devices
    assert device.uuid == "GPU-1"
    assert "requested_bytes.all.current" not in device.stats, "not counted is not zero"


def test_every_failure_is_contained_and_counted(tmp_path: Path) -> None:
    broken = FakeCuda([ValueError("boom\nsecond line")], ["a"])
    probe = publisher(tmp_path, FakeTorch(broken))
    assert not probe.publish_contained()
    broken.devices = [nested(MIB, 2 * MIB, 0)]
    assert probe.publish_contained()
    record = published(tmp_path)
    assert record.errors == 1
    assert "ValueError: boom" in record.last_error
    assert record.busy_s > 0


def test_the_file_is_private_to_user_and_group_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o777)
    try:
        publisher(tmp_path, None).publish()
    finally:
        os.umask(old)
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("precious")
    folder.mkdir()
    (folder / ".probe-1-2.json.tmp").symlink_to(victim)
    (folder / "probe-1-2.json").symlink_to(victim)
    descriptor = open_folder(str(folder))
    replace_file(descriptor, "probe-1-2.json", b"{}")
    os.close(descriptor)
    assert victim.read_text() == "precious"
    assert (folder / "probe-1-2.json").read_bytes() == b"{}"
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError):
        open_folder(str(tmp_path / "link"))


def test_a_link_put_there_in_the_last_moment_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("precious")
    folder.mkdir()
    (folder / ".probe-1-2.json.tmp").symlink_to(victim)
    descriptor = open_folder(str(folder))
    monkeypatch.setattr(os, "unlink", lambda path, dir_fd=None: None)
    with pytest.raises(OSError):
        replace_file(descriptor, "probe-1-2.json", b"{}")
    os.close(descriptor)
    assert victim.read_text() == "precious"


def test_a_folder_in_which_anyone_may_replace_files_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError):
        open_folder(str(tmp_path))
    tmp_path.chmod(0o1777)
    os.close(open_folder(str(tmp_path)))


def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = open_folder(str(tmp_path))
    replace_file(descriptor, "probe-1-1.json", b"old")
    monkeypatch.setattr(os, "write", lambda file, content: 1)
    with pytest.raises(OSError, match="full"):
        replace_file(descriptor, "probe-1-1.json", b"new")
    os.close(descriptor)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


def test_files_of_the_long_dead_are_swept_and_nothing_else(tmp_path: Path) -> None:
    old, new, other = tmp_path / "probe-1-1.json", tmp_path / "probe-1-2.json", tmp_path / "notes.json"
    for path in (old, new, other):
        path.write_text("{}")
    for path in (old, other):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    descriptor = open_folder(str(tmp_path))
    sweep(descriptor, os.geteuid())
    os.close(descriptor)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.json", "probe-1-2.json"]


@pytest.mark.parametrize("asked", ["", "0", "off", "False"])
def test_it_does_nothing_unless_asked(asked: str) -> None:
    assert Settings.of({"SOAKD_PROBE": asked}) is None
    assert Settings.of({}) is None


def test_settings_of_the_environment() -> None:
    found = Settings.of({"SOAKD_PROBE": "/a/b", "SOAKD_PROBE_INTERVAL": "nonsense", "CUDA_VISIBLE_DEVICES": "1"})
    assert found == Settings("/a/b", 1.0, "1")
    assert Settings.of({"SOAKD_PROBE": "/a", "SOAKD_PROBE_INTERVAL": "0.00001"}) == Settings("/a", 1.0, "")
    assert usual_folder({"XDG_RUNTIME_DIR": "/x"}) in ("/x/soakd/probe", "/run/soakd/probe")


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"schema":"soakd.probe/1"}', b'{"schema":"other"}', b"\xff"])
def test_other_files_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        decode(raw)


def test_records_round_trip_and_wrong_numbers_are_refused(tmp_path: Path) -> None:
    publisher(tmp_path, FakeTorch(FakeCuda([nested(MIB, 2 * MIB, 0)], ["a"]))).publish()
    record = published(tmp_path)
    assert decode(encode(record)) == record
    data = json.loads(encode(record))
    for change in (
        {"pid": "1"},
        {"wall_ns": 1.5},
        {"interval_s": "x"},
        {"devices": [{"stats": {"a": "b"}}]},
        {"new": 1},
    ):
        with pytest.raises(ValueError):
            decode(json.dumps(data | change).encode())


SERVER = """
import os, sys, threading, time
{load}
def wait(pid):
    for _ in range(400):
        for name in os.listdir(sys.argv[1]) if os.path.isdir(sys.argv[1]) else ():
            if name.endswith(f"-{{pid}}.json"): return True
        time.sleep(0.01)
    return False
assert wait(os.getpid()), "no file of the parent"
assert [t.name for t in threading.enumerate()].count("soakd-probe") == 1
child = os.fork()
if child == 0:
    os._exit(0 if wait(os.getpid()) else 9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "no file of the forked child"
assert "torch" not in sys.modules and "soakd.model" not in sys.modules
print("alive", flush=True)
"""


def serve(folder: Path, load: str, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.defpath,
        "SOAKD_PROBE": str(folder),
        "SOAKD_PROBE_INTERVAL": "0.1",
        "PYTHONPATH": str(path),
    }
    command = [sys.executable, "-c", SERVER.format(load=load), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)


def test_a_server_and_the_child_it_forks_publish_and_the_file_goes_at_exit(tmp_path: Path) -> None:
    root = Path(soakd.probe.__file__).parents[2]
    load = "import soakd.probe.auto\nfrom soakd.probe import register\nregister(); register()"
    done = serve(tmp_path / "p", load, root)
    assert done.stdout == "alive\n", done.stderr
    names = [p.name for p in (tmp_path / "p").iterdir()]
    assert len(names) == 1, "the parent's is removed, the killed child's stays and is stale by its start time"


def test_the_folder_works_alone(tmp_path: Path) -> None:
    shutil.copytree(Path(soakd.probe.__file__).parent, tmp_path / "copy/probe")
    done = serve(tmp_path / "p", "import probe.auto", tmp_path / "copy")
    assert done.stdout == "alive\n", done.stderr


def test_a_folder_that_can_not_be_made_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = "import soakd.probe.auto, time; time.sleep(0.3); print('alive')"
    environment = {"PATH": os.defpath, "SOAKD_PROBE": str(tmp_path / "file/x"), "SOAKD_PROBE_INTERVAL": "0.1",
                   "PYTHONPATH": str(Path(soakd.probe.__file__).parents[2])}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=environment, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("alive\n", "", 0)
