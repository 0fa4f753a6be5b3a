"""The generated model: same bytes for the same shape, other file for another, never a half-written one."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from soakd.demo import tiny_qwen
from soakd.demo.tiny_qwen import Shape, cached_model, write_model


def test_the_same_shape_gives_the_same_bytes(tmp_path: Path) -> None:
    write_model(tmp_path / "a", Shape())
    write_model(tmp_path / "b", Shape())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert 400_000 < (tmp_path / "a").stat().st_size < 700_000


def test_it_is_a_qwen3(tmp_path: Path) -> None:
    fields = gguf.GGUFReader(cached_model(tmp_path)).fields
    assert fields["general.architecture"].contents() == "qwen3"
    assert fields["qwen3.context_length"].contents() == 32768


def test_no_block_writes_the_channel_that_keeps_the_text_printable(tmp_path: Path) -> None:
    tensors = {t.name: t.data for t in gguf.GGUFReader(cached_model(tmp_path)).tensors}
    assert set(tensors["token_embd.weight"][:, 0]) == {4.0}
    for layer in range(Shape().layers):
        for name in ("attn_output", "ffn_down"):
            assert not tensors[f"blk.{layer}.{name}.weight"][0].any()
            assert tensors[f"blk.{layer}.{name}.weight"][1].any()


def test_another_shape_is_another_file(tmp_path: Path) -> None:
    assert cached_model(tmp_path, Shape(seed=2)) != cached_model(tmp_path)


def test_a_cached_model_is_not_made_again(tmp_path: Path) -> None:
    path = cached_model(tmp_path)
    path.write_bytes(b"kept")
    assert cached_model(tmp_path).read_bytes() == b"kept"


def test_a_failed_write_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(out: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(tiny_qwen, "_finish", fail)
    with pytest.raises(OSError, match="disk full"):
        cached_model(tmp_path)
    monkeypatch.undo()
    assert cached_model(tmp_path).stat().st_size > 400_000
