from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from soakd.targets.processes import Picked, find_process, is_local

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class FakeProc:
    """A /proc of a few processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()

    def listen(self, port: int, inode: int, net: str = "net", address: str = "0100007F", state: str = "0A") -> None:
        file = self.root / net / ("tcp6" if len(address) > 8 else "tcp")
        file.parent.mkdir(exist_ok=True, parents=True)
        peer = "0" * len(address)
        line = (
            f"   0: {address}:{port:04X} {peer}:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1\n"
        )
        file.write_text((file.read_text() if file.exists() else HEADER) + line)

    def process(self, pid: int, command: str, *, parent: int = 1, inodes: tuple[int, ...] = (), name: str = "") -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        name = name or Path(command.split()[0]).name
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1\n")
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        for fd, inode in enumerate(inodes, 3):
            (folder / "fd" / str(fd)).symlink_to(f"socket:[{inode}]")

    def find(self, port: int = 8000, **more: object) -> Picked:
        return find_process(self.root, port, **more)  # type: ignore[arg-type]


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)


@pytest.mark.parametrize("address", ["0100007F", "00000000", "0" * 32])
def test_the_process_that_listens_is_picked_and_shown(proc: FakeProc, address: str) -> None:
    proc.listen(8000, 77, address=address)
    proc.process(10, "python other.py", inodes=(5,))
    proc.process(11, "/usr/bin/llama-server --port 8000", inodes=(77,))
    picked = proc.find()
    assert picked.pid == 11
    assert picked.command[0] == "/usr/bin/llama-server"
    assert picked.how == "pid 11 (/usr/bin/llama-server --port 8000): it listens on port 8000"


def test_a_client_of_the_port_is_not_the_server(proc: FakeProc) -> None:
    proc.listen(8000, 55, state="01")
    proc.process(12, "curl http://127.0.0.1:8000", inodes=(55,))
    assert proc.find().pid is None


def test_the_top_of_the_servers_tree_is_picked(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    proc.process(20, "bash -c vllm serve Qwen --port 8000")
    proc.process(21, "/usr/bin/python /usr/bin/vllm serve Qwen --port 8000".replace("/usr/bin/vllm", "vllm"), parent=20)
    proc.process(22, "VLLM::APIServer", parent=21, inodes=(77,))
    proc.process(23, "VLLM::EngineCore", parent=21)
    assert proc.find().pid == 21


def test_workers_that_share_the_socket_are_one_server(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    for pid, parent in ((30, 1), (31, 30), (32, 30)):
        proc.process(pid, "python serve_my_model.py", parent=parent, inodes=(77,))
    assert proc.find().pid == 30


def test_behind_a_container_proxy_the_server_that_listens_inside_is_picked(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    proc.process(
        40, "docker-proxy -proto tcp -host-port 8000 -container-ip 172.17.0.2 -container-port 8080", inodes=(77,)
    )
    for pid, port, inode in ((41, 8080, 91), (42, 9090, 92)):
        proc.process(pid, f"llama-server --port {port}", inodes=(inode,))
        proc.listen(port, inode, net=f"{pid}/net", address="00000000")
    picked = proc.find()
    assert picked.pid == 41
    assert (
        "port 8000 is held by docker-proxy (pid 40), a proxy; it listens on port 8080 in its own network" in picked.how
    )


def test_behind_a_proxy_the_only_server_is_picked(proc: FakeProc) -> None:
    proc.listen(80, 77)
    proc.process(50, "nginx -g daemon", inodes=(77,))
    proc.process(51, "python -m sglang.launch_server --model q")
    picked = proc.find(80)
    assert picked.pid == 51
    assert "it is the only LLM server running here" in picked.how


def test_behind_a_proxy_the_model_decides_between_two(proc: FakeProc) -> None:
    proc.listen(80, 77)
    proc.process(50, "nginx -g daemon", inodes=(77,))
    proc.process(51, "vllm serve Qwen/Qwen3-8B")
    proc.process(52, "vllm serve Qwen/Qwen3-32B")
    assert proc.find(80, model="Qwen/Qwen3-32B").pid == 52


def test_when_two_fit_none_is_picked_and_both_are_shown(proc: FakeProc) -> None:
    proc.listen(80, 77)
    proc.process(50, "nginx -g daemon", inodes=(77,))
    proc.process(51, "vllm serve a")
    proc.process(52, "vllm serve b")
    picked = proc.find(80, model="c")
    assert picked.pid is None
    assert "2 fit (pid 51 (vllm serve a), pid 52 (vllm serve b)); set target.pid" in picked.how


def test_a_proxy_with_no_server_behind_it(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    proc.process(60, "ssh -L 8000:gpu:8000 gpu", inodes=(77,))
    picked = proc.find()
    assert picked.pid is None
    assert "held by ssh (pid 60), a proxy, and no LLM server was recognised" in picked.how


def test_another_users_process_may_not_be_read(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.listen(8000, 77)
    proc.process(70, "llama-server --port 8000", inodes=(77,))
    proc.process(71, "python train.py", inodes=(78,))
    listdir = os.listdir

    def guarded(path: str | Path) -> list[str]:
        if str(path).endswith("70/fd"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)
    picked = proc.find()
    assert picked.pid == 70
    assert "may not be read (1 processes of other users)" in picked.how


def test_a_configured_pid_wins(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    proc.process(80, "llama-server", inodes=(77,))
    proc.process(81, "my-server --x")
    assert proc.find(pid=81).how == "pid 81 (my-server --x): configured as target.pid"
    gone = proc.find(pid=99)
    assert gone.pid is None
    assert "pid 99 does not run" in gone.how


def test_a_configured_command_wins_and_must_be_one(proc: FakeProc) -> None:
    proc.process(90, "my-server --model a")
    proc.process(91, "my-server --model b")
    assert proc.find(command="--model b").pid == 91
    assert "2 fit" in proc.find(command="my-server").how
    assert "no process picked" in proc.find(command="other").how


def test_zombies_and_processes_that_end_meanwhile_are_left_out(proc: FakeProc) -> None:
    proc.process(95, "vllm serve a")
    (proc.root / "95" / "stat").write_text("95 (vllm serve (a)) Z 1 95 95\n")
    (proc.root / "96").mkdir()
    assert proc.find().pid is None


def test_keys_in_the_command_line_are_never_kept(proc: FakeProc) -> None:
    proc.listen(8000, 77)
    proc.process(97, "vllm serve q --api-key sk-very-secret --port 8000", inodes=(77,))
    picked = proc.find()
    assert "sk-very-secret" not in repr(picked)
    assert picked.command[-1] == "8000"


def test_this_process_is_found_by_its_real_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        picked = find_process(Path("/proc"), server.getsockname()[1])
    assert picked.pid == os.getpid()


def test_an_empty_proc_is_no_error(tmp_path: Path) -> None:
    assert find_process(tmp_path / "none", 1).pid is None


def test_loopback_is_local_and_documentation_addresses_are_not() -> None:
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert not is_local("192.0.2.1")
