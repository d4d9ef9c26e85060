"""A GPU's way to the host, as the kernel shows it in /sys."""

from __future__ import annotations

from pathlib import Path

from rigup.programs.links import pci_links

BUS = "0000:01:00.0"


def tree(root: Path, acs: int | None = None, config: int = 4096) -> str:
    """Makes a GPU below a switch's port below a root port, whose ACS control is `acs`; returns the devices' folder."""
    port = root / "sys/devices/pci0000:00/0000:00:01.0"
    gpu = port / "0000:00:02.0" / BUS
    gpu.mkdir(parents=True)
    whole = bytearray(config)
    if acs is not None:
        whole[0x100:0x104] = (0x140 << 20 | 1).to_bytes(4, "little")  # another capability, then ACS
        whole[0x140:0x144] = (0x0D).to_bytes(4, "little")
        whole[0x146:0x148] = acs.to_bytes(2, "little")
    for device in (port, port / "0000:00:02.0", gpu):
        (device / "config").write_bytes(bytes(config))
    (port / "config").write_bytes(bytes(whole))
    (gpu / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (gpu / "max_link_width").write_text("16\n")
    (gpu / "iommu_group").mkdir()
    (gpu / "iommu_group/type").write_text("DMA-FQ\n")
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / BUS).symlink_to(gpu)
    return str(devices)


def test_what_the_card_itself_can_and_its_iommu(tmp_path: Path) -> None:
    found = pci_links.describe(BUS, tree(tmp_path))
    assert found == {"card_generation": 4, "card_width": 16, "iommu": "DMA-FQ", "acs": []}


def test_bridges_that_redirect_are_named(tmp_path: Path) -> None:
    assert pci_links.describe(BUS, tree(tmp_path / "on", acs=0x1D))["acs"] == ["0000:00:01.0"]
    assert pci_links.describe(BUS, tree(tmp_path / "off", acs=0x01))["acs"] == []


def test_a_short_configuration_says_nothing_of_acs(tmp_path: Path) -> None:
    assert pci_links.describe(BUS, tree(tmp_path, config=64))["acs"] is None


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    unknown = {"card_generation": None, "card_width": None, "iommu": None, "acs": []}
    assert pci_links.describe(BUS, str(tmp_path)) == unknown
