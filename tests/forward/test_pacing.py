from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soakd.forward.pacing import Allowance, backoff_s


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_waits_grow_but_stay_within_bounds(failures: int, jitter: float) -> None:
    assert 0.25 <= backoff_s(failures, jitter) <= 60
    assert backoff_s(failures, jitter) <= backoff_s(failures + 1, jitter)
    assert backoff_s(failures, jitter, refused=True) <= 300


def test_jitter_spreads_hosts() -> None:
    assert backoff_s(5, 0.0) == pytest.approx(backoff_s(5, 1.0) / 2)


@given(st.integers(1, 50), st.floats(0, 1), st.floats(0, 600))
def test_never_before_the_servers_wish(failures: int, jitter: float, wish: float) -> None:
    assert backoff_s(failures, jitter, retry_after_s=wish) >= wish


def test_over_time_no_more_than_the_rate_goes_out() -> None:
    allowance, now, sent = Allowance(1000.0, 1.0, 0), 0, 0
    while now < 60 * 10**9 and sent < 10**6:
        wait = allowance.wait_s(now)
        if wait > 0:
            now += int(wait * 1e9) + 1
        else:
            allowance.spend(5000)
            sent += 5000
    assert sent <= 60 * 1000 + 5000
