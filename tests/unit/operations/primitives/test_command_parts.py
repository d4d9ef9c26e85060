"""The output of several commands, divided again."""

from __future__ import annotations

from rigup.operations.primitives.command_parts import PART_END, parts_of


def test_each_command_has_its_lines_and_silence_is_a_part() -> None:
    assert parts_of(["a", "b", PART_END, PART_END, "c", PART_END]) == [["a", "b"], [], ["c"], []]


def test_a_marker_within_a_line_ends_nothing() -> None:
    assert parts_of([f"x{PART_END}"]) == [[f"x{PART_END}"]]
