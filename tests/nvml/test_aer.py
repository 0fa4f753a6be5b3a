"""AER files of the kernel: two vocabularies, unnamed bits, totals that differ from the sum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from soakd.nvml.aer import _OLD_NAMES, canonical, parse_aer


def test_both_vocabularies_give_the_same_names() -> None:
    old = parse_aer(
        "Receiver Error 1\nBad TLP 2\nBad DLLP 3\nRELAY_NUM Rollover 4\nReplay Timer Timeout 5\n"
        "Advisory Non-Fatal 6\nCorrected Internal Error 7\nHeader Log Overflow 8\nTOTAL_ERR_COR 36\n"
    )
    new = parse_aer(
        "RxErr 1\nBadTLP 2\nBadDLLP 3\nRollover 4\nTimeout 5\nNonFatalErr 6\nCorrIntErr 7\nHeaderOF 8\n"
        "TOTAL_ERR_COR 36\n"
    )
    assert old == new
    assert new.sum == new.total == 36


def test_a_poisoned_tlp_is_not_the_last_word_of_it() -> None:
    # splitting at the first blank would read "Poisoned" with the value "TLP"
    assert parse_aer("Poisoned TLP 4\n").errors == {"TLP": 4}


def test_unknown_names_are_kept() -> None:
    counts = parse_aer("dev_cor_errs_bit[9] 3\nSome Future Error 2\nTOTAL_ERR_COR 5\n")
    assert counts.errors == {"dev_cor_errs_bit[9]": 3, "Some_Future_Error": 2}


def test_total_and_sum_are_both_kept() -> None:
    counts = parse_aer("BadTLP 2\nTOTAL_ERR_COR 3\n")
    assert (counts.sum, counts.total) == (2, 3)


def test_a_file_without_total_says_so() -> None:
    assert parse_aer("BadTLP 2\n").total is None


def test_lines_that_say_nothing_are_counted() -> None:
    assert parse_aer("BadTLP two\n17\nBadTLP 1\n").bad_lines == 2


def test_a_file_without_end_is_bounded() -> None:
    assert len(parse_aer("".join(f"Err{n} 1\n" for n in range(10_000))).errors) <= 64


_NAMES = st.one_of(
    st.sampled_from(sorted({*_OLD_NAMES, *_OLD_NAMES.values()})), st.from_regex(r"[A-Za-z_\[\]]{1,20}", fullmatch=True)
)


@given(st.dictionaries(_NAMES.map(str.strip).filter(bool), st.integers(0, 2**64 - 1), max_size=30))
def test_whatever_is_written_is_read(errors: dict[str, int]) -> None:
    errors = {name: n for name, n in errors.items() if not name.startswith("TOTAL_ERR") and "\n" not in name}
    counts = parse_aer("".join(f"{name} {n}\n" for name, n in errors.items()) + f"TOTAL_ERR_FATAL {7}\n")
    assert counts.total == 7
    assert counts.sum == sum(errors.values())
    assert set(counts.errors) == {canonical(name) for name in errors}


@given(st.text(max_size=500))
def test_no_text_breaks_the_parser(text: str) -> None:
    counts = parse_aer(text)
    assert all(n >= 0 for n in counts.errors.values())
