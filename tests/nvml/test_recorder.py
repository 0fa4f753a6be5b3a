"""A recording holds what was answered, nothing that identifies the machine, and plays back to the same samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from soakd.errors import SoakdError
from soakd.model import State
from soakd.nvml.device import Answer, DeviceError
from soakd.nvml.pool import GpuProbe, QueryProbe
from soakd.nvml.recorder import record
from soakd.nvml.replay import Frame, Recording, load_recording
from soakd.nvml.replay_source import ReplaySource
from soakd.nvml.sysfs_tree import record_sysfs, write_sysfs
from soakd.ports import GpuReply
from tests.support.gpus import FAMILIES, FIXTURES, HandClock, replay, sysfs_of

SECRETS = ("GPU-6f1c2d3e-aaaa-bbbb-cccc-ddddeeeeffff", "MIG-77777777-aaaa-bbbb-cccc-ddddeeeeffff", "1650009876543")


class Playing:
    """A source that goes one frame on with each fast reading, and says what its probe found."""

    def __init__(self, source: ReplaySource) -> None:
        self._source = source

    async def ask(self, tier: str) -> Sequence[GpuReply]:
        replies = await self._source.ask(tier)
        if tier == "slow":
            self._source.step()
        return replies

    async def probe(self) -> Sequence[GpuProbe]:
        fast = await self._source.ask("fast")
        return tuple(GpuProbe(r.gpu, State.OK, {k: QueryProbe(State.OK, 0, 42) for k in r.answers}) for r in fast)


def secret_recording() -> Recording:
    base = load_recording(FIXTURES / "a100")
    card = base.card._replace(uuid=SECRETS[0], serial=SECRETS[2], migs=(SECRETS[1],))
    processes = Answer(0, [{"pid": 31337, "used": 7}])
    frames = tuple(
        Frame({**f.fast, SECRETS[1]: {"memory": f.fast[""]["memory"]}},
              {**f.slow, "": {**f.slow[""], "compute_processes": processes}, SECRETS[1]: {}}, f.fault)
        for f in base.frames
    )  # fmt: skip
    return Recording(card, frames)


async def test_nothing_that_identifies_the_machine_is_written(tmp_path: Path) -> None:
    clock = HandClock()
    write_sysfs(sysfs_of("a100"), tmp_path / "sys")
    source = Playing(ReplaySource([secret_recording()], clock))
    (folder,) = await record(source, clock, tmp_path / "sys", tmp_path / "out", frames=3)
    written = "".join(p.read_text() for p in folder.iterdir())
    for secret in (*SECRETS, "31337"):
        assert secret not in written
    assert "A100" in written


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_recording_plays_back_as_it_was_answered(family: str, tmp_path: Path) -> None:
    clock = HandClock()
    write_sysfs(sysfs_of(family), tmp_path / "sys")
    (folder,) = await record(Playing(replay(clock, family)), clock, tmp_path / "sys", tmp_path / "out", frames=5)
    before, after = replay(clock, family), ReplaySource([load_recording(folder)], clock)
    for _ in range(5):
        for tier in ("fast", "slow"):
            (was,), (now,) = await before.ask(tier), await after.ask(tier)
            assert now.state is was.state
            for key, answer in was.answers.items():
                if not key.endswith("_processes"):
                    assert now.answers[key] == answer, key
        before.step()
        after.step()


async def test_latencies_are_kept(tmp_path: Path) -> None:
    clock = HandClock()
    (folder,) = await record(Playing(replay(clock, "h200")), clock, tmp_path / "none", tmp_path / "out")
    assert load_recording(folder).frames[0].fast[""]["memory"].us == 42


async def test_without_a_card_there_is_nothing_to_record(tmp_path: Path) -> None:
    clock = HandClock()
    with pytest.raises(SoakdError, match="nothing to record"):
        await record(Playing(ReplaySource([], clock)), clock, tmp_path, tmp_path / "out")


async def test_a_directory_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    clock = HandClock()
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SoakdError, match="can't write the recording"):
        await record(Playing(replay(clock, "h200")), clock, tmp_path, tmp_path / "out")


@pytest.mark.parametrize("family", ["v100", "a100", "consumer"])
def test_a_sysfs_tree_is_recorded_as_it_was_written(family: str, tmp_path: Path) -> None:
    tree = sysfs_of(family)
    write_sysfs(tree, tmp_path)
    assert record_sysfs(tmp_path) == tree


def test_an_unreadable_attribute_is_recorded_as_such(tmp_path: Path) -> None:
    tree = sysfs_of("a100")
    tree["0000:41:00.0"]["power/control"] = "<error: EIO>"
    write_sysfs(tree, tmp_path)
    assert record_sysfs(tmp_path)["0000:41:00.0"]["power/control"].startswith("<error: ")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "other"}', '{"schema": "soakd.recording/1", "frames": []}']
)
def test_what_is_no_recording_is_said_with_its_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_text(text)
    with pytest.raises(DeviceError, match=r"recording\.json is not a recording"):
        load_recording(tmp_path)


def test_the_recordings_written_by_hand_say_so() -> None:
    for family in ("v100", "a100", "consumer"):
        assert json.loads((FIXTURES / family / "recording.json").read_text())["by_hand"] is True
        assert "by hand" in (FIXTURES / family / "README.md").read_text()
