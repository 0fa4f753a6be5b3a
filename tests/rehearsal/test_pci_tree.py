"""The simulated /sys: the shape of a real one, and the traces that a lost card leaves."""

from __future__ import annotations

from pathlib import Path

from soakd.rehearsal.activity import Activity
from soakd.rehearsal.pci_tree import PciModel, PciTree
from soakd.rehearsal.scenarios import SCENARIOS

STEADY = Activity.steady()


def tree(root: Path, scenario: str) -> tuple[PciTree, PciModel]:
    model = PciModel(SCENARIOS[scenario], 1000.0)
    made = PciTree(root, model)
    made.create(STEADY)
    return made, model


def read(root: Path, bdf: str, name: str) -> str:
    return (root / "bus/pci/devices" / bdf / name).read_text().strip()


def total(root: Path, bdf: str, name: str) -> int:
    return int(read(root, bdf, name).splitlines()[-1].rsplit(" ", 1)[1])


def test_a_card_is_found_below_its_bridges(tmp_path: Path) -> None:
    _, model = tree(tmp_path, "healthy")
    path = (tmp_path / "bus/pci/devices" / model.bdf(1)).resolve()
    above = [p.name for p in path.parents if p.name.count(":") == 2]
    assert above == ["0000:18:04.0", "0000:17:00.0", "0000:16:00.0"]
    assert read(tmp_path, "0000:16:00.0", "class") == "0x060400"
    assert read(tmp_path, model.bdf(1), "vendor") == "0x10de"
    assert (path / "power/runtime_status").read_text() == "active\n"
    assert (path / "driver").resolve() == tmp_path.resolve() / "bus/pci/drivers/nvidia"
    assert read(tmp_path, model.bdf(0), "current_link_speed") == "8.0 GT/s PCIe"


def test_totals_match_their_lines(tmp_path: Path) -> None:
    _, model = tree(tmp_path, "healthy")
    for port in model.ports():
        lines = read(tmp_path, port.bdf, "aer_dev_correctable").splitlines()
        counts = [int(line.rsplit(" ", 1)[1]) for line in lines]
        assert sum(counts[:-1]) == counts[-1]
        assert lines[-1].startswith("TOTAL_ERR_COR ")


def test_nothing_moves_in_a_healthy_run(tmp_path: Path) -> None:
    _, model = tree(tmp_path, "healthy")
    assert model.files(0, STEADY) == model.files(999, STEADY)


def test_a_lost_card_leaves_its_traces_upstream(tmp_path: Path) -> None:
    made, model = tree(tmp_path, "gpu-lost")
    before = total(tmp_path, "0000:18:04.0", "aer_dev_fatal")
    made.update(601.0, STEADY)
    assert read(tmp_path, model.bdf(1), "current_link_speed") == "Unknown"
    assert read(tmp_path, model.bdf(1), "current_link_width") == "63"
    assert total(tmp_path, "0000:18:04.0", "aer_dev_fatal") == before + 1
    assert read(tmp_path, "0000:16:00.0", "aer_rootport_total_err_fatal") == "1"
    assert read(tmp_path, model.bdf(0), "current_link_width") == "16"
    assert total(tmp_path, "0000:18:00.0", "aer_dev_fatal") == 0


def test_a_card_without_a_server_idles_at_low_link_speed(tmp_path: Path) -> None:
    made, model = tree(tmp_path, "healthy")
    made.update(10.0, Activity(()))
    assert read(tmp_path, model.bdf(0), "current_link_speed") == "2.5 GT/s PCIe"


def test_it_can_be_made_again_in_the_same_place(tmp_path: Path) -> None:
    tree(tmp_path, "healthy")
    _, model = tree(tmp_path, "healthy")
    assert read(tmp_path, model.bdf(0), "power_state") == "D0"
    assert not list(tmp_path.rglob("*.new"))
