from __future__ import annotations

from pathlib import Path

from soakd.model import Sample, labels
from soakd.registry import plugins
from soakd.sinks import file
from tests.support.readings import T0, TEMPERATURE


def sink(directory: Path, **keys: object) -> file.FileSink:
    return file.build(file.Config.model_validate({"directory": directory, **keys}), labels(host="h"))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def sample(at: int) -> Sample:
    return Sample.ok(TEMPERATURE, float(at), T0 + at)


async def test_lines_are_appended(tmp_path: Path) -> None:
    out = sink(tmp_path / "deep" / "down")
    await out.write([sample(1), sample(2)])
    await out.write([sample(3)])
    lines = (tmp_path / "deep" / "down" / "soakd.lp").read_text().splitlines()
    assert lines == [out.line(sample(at)) for at in (1, 2, 3)]


async def test_a_line_torn_by_a_crash_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "soakd.lp").write_text("soakd_gpu_temp")
    out = sink(tmp_path)
    await out.write([sample(1)])
    assert (tmp_path / "soakd.lp").read_text().splitlines()[1] == out.line(sample(1))


async def test_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    out = sink(tmp_path, max_bytes=100, keep=2)
    for at in range(5):
        await out.write([sample(at)])
    assert names(tmp_path) == ["soakd.lp", "soakd.lp.1", "soakd.lp.2"]
    kept = [(tmp_path / name).read_text().strip() for name in ("soakd.lp.2", "soakd.lp.1", "soakd.lp")]
    assert kept == [out.line(sample(at)) for at in (2, 3, 4)]


def test_the_sinks_are_found_as_plug_ins() -> None:
    assert set(plugins("sinks")) >= {"file", "influx"}
