"""What nvidia-smi says against samples: N/A is never 0, and what moves is told apart."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from bench.device.smi_agreement import compare, parse
from soakd.collectors.gpu_ecc import slow_samples as ecc_samples
from soakd.collectors.gpu_memory import memory_samples
from soakd.nvml.readings import CardReading
from tests.support.gpus import HandClock, replay

XML = """<gpu><fb_memory_usage><total>143771 MiB</total><reserved>616 MiB</reserved><used>9 MiB</used>
<free>143156 MiB</free></fb_memory_usage><fan_speed>N/A</fan_speed>
<ecc_errors><volatile><dram_correctable>0</dram_correctable><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
<sram_uncorrectable_secded>0</sram_uncorrectable_secded></volatile></ecc_errors>
<retired_pages><double_bit_retirement><retired_count>N/A</retired_count></double_bit_retirement></retired_pages>
<remapped_rows><row_remapper_histogram><row_remapper_histogram_max>3072 bank(s)</row_remapper_histogram_max>
</row_remapper_histogram></remapped_rows></gpu>"""


@pytest.mark.parametrize(
    ("text", "number"),
    [("143771 MiB", 143771), ("16x", 16), ("P0", 0), ("-8 C", -8), ("Not Active", 0), ("No", 0), ("3072 bank(s)", 3072),
     ("690.21 W", 690.21), ("0 us", 0), ("N/A", None), ("[N/A]", None), ("[Unknown Error]", None), ("", None)],
)  # fmt: skip
def test_numbers_of_nvidia_smi(text: str, number: float | None) -> None:
    assert parse(text) == number


async def test_verdicts() -> None:
    source = replay(HandClock(), "h200")
    (fast,), (slow,) = await source.ask("fast"), await source.ask("slow")
    samples = [*memory_samples(CardReading(fast)), *ecc_samples(CardReading(slow))]
    rows = {(r.metric, r.labels): r.verdict for r in compare(samples, ET.fromstring(XML))}
    assert rows["gpu_memory_total_bytes", ""] == "agree"
    assert rows["gpu_memory_reserved_bytes", ""] == "agree"
    assert rows["gpu_memory_used_bytes", ""] == "differ"
    assert rows["gpu_retired_pages_total", "cause=double_bit"] == "both_unknown"
    assert rows["gpu_row_remap_banks", "spare=max"] == "agree"
    where = "counter=volatile error=uncorrected location=sram"
    assert rows["gpu_ecc_location_errors_total", where] == "agree"
    assert rows["gpu_fan_speed_ratio", ""] == "both_unknown"
    assert rows["gpu_temperature_celsius", "sensor=core"] == "not_in_smi"
