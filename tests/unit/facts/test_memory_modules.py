"""What the firmware's tables say of a host's memory: kind, speed and channels, and nothing where they do not tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rigup.facts.memory_modules import described, module_of
from rigup.facts.probe_parsing import parse
from rigup.facts.probe_script import definitions

DDR4, DDR5, UNKNOWN = 0x1A, 0x22, 0x02


def structure(
    locator: str, bank: str = "", kind: int = DDR5, speed: int = 5600, configured: int = 4800, size: int = 0x4000
) -> str:
    """A memory device as SMBIOS 2.7 has it, in hexadecimal without the two zeros at its end."""
    data = bytearray(0x22)
    data[0:2] = bytes([17, 0x22])
    data[0x0C:0x0E] = size.to_bytes(2, "little")
    data[0x10], data[0x11], data[0x12] = 1, 2 if bank else 0, kind
    data[0x15:0x17] = speed.to_bytes(2, "little")
    data[0x20:0x22] = configured.to_bytes(2, "little")
    names = b"\0".join(name.encode() for name in (locator, bank) if name)
    return (bytes(data) + names).hex()


def found(*structures: str) -> str:
    """What a rig would say of these modules."""
    modules = (module_of(each) for each in structures)
    return described(module for module in modules if module is not None)


@pytest.mark.parametrize(
    ("locators", "text"),
    [
        ([(f"DIMM_{letter}1", "") for letter in "ABCDEFGH"], "8x DDR5-4800"),
        ([("DIMM_A1", ""), ("DIMM_A2", ""), ("DIMM_B1", ""), ("DIMM_B2", "")], "2x DDR5-4800"),
        ([(f"CPU{cpu}_DIMM_{letter}1", "") for cpu in (0, 1) for letter in "ABCD"], "8x DDR5-4800"),
        ([(f"DIMM {slot}", f"P0 CHANNEL {channel}") for channel in "AB" for slot in (0, 1)], "2x DDR5-4800"),
        ([("Controller0-ChannelA-DIMM0", "BANK 0"), ("Controller1-ChannelA-DIMM0", "BANK 0")], "2x DDR5-4800"),
        ([("DIMM 0", ""), ("DIMM 1", "")], ""),
    ],
)
def test_modules_of_one_channel_count_once(locators: list[tuple[str, str]], text: str) -> None:
    assert found(*(structure(locator, bank) for locator, bank in locators)) == text


def test_empty_slots_do_not_count_and_the_slowest_module_sets_the_pace() -> None:
    modules = [structure("DIMM_A1"), structure("DIMM_B1", configured=4400), structure("DIMM_C1", size=0)]
    assert found(*modules) == "2x DDR5-4400"


def test_the_modules_own_speed_counts_where_none_is_configured() -> None:
    assert found(structure("DIMM_A1", configured=0)) == "1x DDR5-5600"


@pytest.mark.parametrize("kind", [UNKNOWN, 0x20])
def test_a_kind_that_is_none_of_ddr_says_nothing(kind: int) -> None:
    assert found(structure("DIMM_A1", kind=kind)) == ""


def test_mixed_kinds_say_nothing() -> None:
    assert found(structure("DIMM_A1"), structure("DIMM_B1", kind=DDR4)) == ""


@pytest.mark.parametrize("text", ["", "zz", "11", "1104", "10" + structure("DIMM_A1")[2:], structure("DIMM_A1")[:30]])
def test_what_is_not_a_memory_device_is_not_a_module(text: str) -> None:
    with pytest.raises(ValueError):
        module_of(text)


def test_a_probe_has_what_its_lines_say_and_passes_over_the_rest() -> None:
    lines = [f"memory_module {structure(f'DIMM_{letter}1')}" for letter in "ABCD"]
    assert parse([*lines, "memory_module not-hexadecimal"]).host_memory == "4x DDR5-4800"
    assert parse([]).host_memory == ""


def test_the_probes_own_lines_are_those_of_the_tables(tmp_path: Path) -> None:
    """The shell cuts the firmware's table into structures; the one after the end of the table is none."""
    bios = bytes([0, 0x14, 0, 0]) + bytes(16) + b"Vendor\0V1\0\0"
    modules = b"".join(bytes.fromhex(structure(f"DIMM_{letter}1", "BANK 0")) + b"\0\0" for letter in "AB")
    unnamed, end = bytes([32, 4, 1, 0]) + b"\0\0", bytes([127, 4, 2, 0, 0, 0])
    table = tmp_path / "DMI"
    table.write_bytes(bios + modules[: len(modules) // 2] + unnamed + modules[len(modules) // 2 :] + end + bytes(40))
    lines = definitions().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("tables="))
    script = "\n".join(['within() { shift; "$@"; }', f"tables={table}", *lines[first + 1 : first + 7]])
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert parse(said.splitlines()).host_memory == "2x DDR5-4800"
