"""The page of faults says what the tests show, and every row is shown by something."""

from __future__ import annotations

from tests.faults.page import PAGE, page
from tests.faults.table import ROWS


def test_every_fault_has_its_row() -> None:
    assert sorted(ROWS) == list(range(1, 88))


def test_the_page_is_what_the_tests_show() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make faults`"


def test_no_row_is_left_out_and_few_hold_in_part() -> None:
    text = page()
    assert "not shown" not in text
    assert text.count("| in part: ") <= 3
