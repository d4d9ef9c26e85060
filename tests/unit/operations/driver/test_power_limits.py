"""Bounds of a power limit, and what hosts say of units and files, understood."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from rigup.errors import HostFailed
from rigup.facts.probe import PowerLimits, ProbedGpu
from rigup.operations.driver import power_limits
from rigup.operations.driver.power_limits import outside, without_limit
from rigup.operations.primitives.text_files import TextFiles
from rigup.operations.primitives.units import State, UnitStates

CARD = ProbedGpu("NVIDIA GeForce RTX 3090", index=1, power=PowerLimits(350.0, 350.0, 100.0, 350.0))
SMALL = ProbedGpu("NVIDIA RTX 2000", index=0, power=PowerLimits(70.0, 70.0, 50.0, 70.0))
SILENT = ProbedGpu("NVIDIA GB10")


def test_a_limit_within_the_bounds_of_every_card_is_fine() -> None:
    assert outside(100, (CARD,)) == outside(350, (CARD,)) == outside(280, (CARD, SILENT)) == ""


def test_each_card_that_does_not_take_it_is_named_with_its_bounds() -> None:
    assert outside(99, (CARD,)) == "99 W is out of bounds: GPU 1 (NVIDIA GeForce RTX 3090) accepts 100 to 350 W"
    assert outside(400, (SMALL, CARD)) == (
        "400 W is out of bounds: GPU 0 (NVIDIA RTX 2000) accepts 50 to 70 W, "
        "GPU 1 (NVIDIA GeForce RTX 3090) accepts 100 to 350 W"
    )
    assert outside(200, (SMALL, CARD)) == "200 W is out of bounds: GPU 0 (NVIDIA RTX 2000) accepts 50 to 70 W"


def test_a_card_that_has_no_limit_to_set_is_named_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = replace(SILENT, uuid="GPU-1", compute_capability="12.1")
    known_to_the_module_alone = replace(SILENT, uuid="GPU-1")
    lost = replace(known_to_the_module_alone, error="lost")
    assert without_limit((CARD, SILENT, lost, known_to_the_module_alone)) == (), "nobody could ask them"
    assert without_limit((CARD, silent)) == ("GPU 0 (NVIDIA GB10)",)
    monkeypatch.setattr(power_limits, "read_probe", lambda host: SimpleNamespace(gpus=(CARD, silent)))
    monkeypatch.setattr(power_limits, "remote", None)
    with pytest.raises(HostFailed) as caught:
        power_limits._limit(SimpleNamespace(name="box"), 280, "[Unit]")
    assert caught.value.message == "box: rig.power_limit_w: GPU 0 (NVIDIA GB10) has no adjustable power limit"


def test_units_are_read_one_by_one() -> None:
    lines = ["Id=a.service", "ActiveState=active", "UnitFileState=enabled", ""]
    lines += ["Id=b.service", "ActiveState=failed", "UnitFileState=disabled"]
    states = UnitStates().process(lines)
    assert states == {"a.service": State("active", "enabled"), "b.service": State("failed", "disabled")}
    assert states["a.service"].is_right and not states["b.service"].is_right
    assert State("active", "static").is_right and not State("active", "disabled").is_right


def test_files_are_read_whole_and_those_that_are_not_there_are_left_out() -> None:
    lines = ["a banner", "##rigup-file##/etc/a", "one", "", "two", "", "##rigup-file##/etc/b", ""]
    assert TextFiles().process(lines) == {"/etc/a": "one\n\ntwo", "/etc/b": ""}
