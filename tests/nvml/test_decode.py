"""What NVML's answers mean: success that says nothing, signed margins, field ids of another release."""

from __future__ import annotations

import pytest

from soakd.model import State
from soakd.nvml.decode import field_answer, sysfs_bdf, thermal_ids_fit
from soakd.nvml.device import NOT_THERE, SUCCESS, Answer
from soakd.nvml.readings import state_of, why_of


def test_success_with_an_unfilled_value_is_not_there() -> None:
    # POWER_MIN_LIMIT and the TLIMIT fields of an H200: return code 0, type 0 (double), value 0
    assert field_answer("DEV_POWER_MIN_LIMIT", 0, 0, 0.0) == Answer(NOT_THERE)
    assert field_answer("DEV_TEMPERATURE_SHUTDOWN_TLIMIT", 0, 0, 0.0) == Answer(NOT_THERE)
    assert state_of(NOT_THERE) is State.ABSENT


def test_a_typed_zero_of_a_tlimit_is_real() -> None:
    # a B200 answers an integer 0 for the margin at which it reaches its maximum
    assert field_answer("DEV_TEMPERATURE_GPU_MAX_TLIMIT", 0, 1, 0) == Answer(SUCCESS, 0)


def test_a_typed_zero_of_a_power_limit_or_a_memory_sensor_is_not_there() -> None:
    assert field_answer("DEV_POWER_MAX_LIMIT", 0, 1, 0).code == NOT_THERE
    assert field_answer("DEV_MEMORY_TEMP", 0, 1, 0).code == NOT_THERE


def test_a_zero_of_a_counter_is_zero() -> None:
    assert field_answer("DEV_PCIE_REPLAY_COUNTER", 0, 1, 0) == Answer(SUCCESS, 0)


@pytest.mark.parametrize(("value_type", "value"), [(1, 2**32 - 8), (2, 2**64 - 8), (5, -8), (4, -8)])
def test_a_margin_may_be_negative_in_every_type(value_type: int, value: int) -> None:
    assert field_answer("DEV_TEMPERATURE_SHUTDOWN_TLIMIT", 0, value_type, value).value == -8


@pytest.mark.parametrize(("value_type", "value"), [(1, 2**32 - 1), (3, 2**64 - 1), (6, 2**16 - 1)])
def test_not_available_is_no_huge_number(value_type: int, value: int) -> None:
    assert field_answer("DEV_ECC_DBE_VOL_TOTAL", 0, value_type, value).code == NOT_THERE


def test_each_value_carries_its_own_return_code() -> None:
    assert field_answer("DEV_RETIRED_PENDING", 3, 3, 0) == Answer(3)
    assert state_of(3) is State.UNSUPPORTED


@pytest.mark.parametrize(
    ("field_id", "driver", "fits"),
    [(269, "580.159.04", True), (251, "580.159.04", False), (251, "575.57.08", True), (269, "575.57.08", False),
     (269, "", True)],
)  # fmt: skip
def test_thermal_field_ids_must_be_of_the_drivers_generation(field_id: int, driver: str, fits: bool) -> None:
    assert thermal_ids_fit(field_id, driver) is fits


@pytest.mark.parametrize(
    ("written", "sysfs"),
    [("00000000:00:06.0", "0000:00:06.0"), ("00000000:3B:00.0", "0000:3b:00.0"), ("PCI:0000:3b:00", "0000:3b:00.0"),
     ("0000:03:00", "0000:03:00.0"), ("00010000:41:00.0", "10000:41:00.0"), ("nonsense", "nonsense")],
)  # fmt: skip
def test_addresses_are_written_as_sysfs_does(written: str, sysfs: str) -> None:
    assert sysfs_bdf(written) == sysfs


@pytest.mark.parametrize(
    ("code", "state"),
    [(0, State.OK), (1, State.ABSENT), (3, State.UNSUPPORTED), (4, State.NO_PERMISSION), (10, State.TIMEOUT),
     (13, State.UNSUPPORTED), (15, State.LOST), (16, State.LOST), (999, State.ABSENT), (12345, State.ABSENT)],
)  # fmt: skip
def test_every_return_code_is_a_state(code: int, state: State) -> None:
    assert state_of(code) is state
    assert (why_of(code) == "") is (code == 0)
