"""Tuned kernels in rigup's own form: read, written, replaced by a fleet's, refused with file and key."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.moe_configs import TOOLKIT, best_for, load_moe_configs, path_of
from rigup.commands.moe_configs import canonical_text
from rigup.errors import InputError
from tests.tuned_kernels import file_of, kernel


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_is_written_is_read_back_in_equal_bytes(tmp_path: Path) -> None:
    text = canonical_text(kernel())
    write(tmp_path, "cards/one.toml", text)
    (file,) = load_moe_configs(tmp_path)
    assert (file.path, file.sha256) == ("cards/one.toml", hashlib.sha256(text.encode()).hexdigest())
    assert file.tuned == kernel()
    assert canonical_text(file.tuned) == text
    assert text.startswith('experts = 32\nwidth = 1536\ndtype = "fp8_w8a8"\nblock_shape = [128, 128]\n')
    assert "[launches.64]\nBLOCK_SIZE_M = 16\n" in text


def test_what_ships_with_the_toolkit_is_usable_and_its_provenance_said() -> None:
    for file in load_moe_configs(TOOLKIT):
        assert "test" not in file.tuned.provenance.measured_by
        assert canonical_text(file.tuned) == (TOOLKIT / file.path).read_text()


def test_a_fleets_file_replaces_the_toolkits_for_the_same_kernel(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(ours, "a.toml", canonical_text(kernel()))
    write(ours, "other.toml", canonical_text(kernel(width=192)))
    write(theirs, "b.toml", canonical_text(kernel(launches={"8": kernel().launches[1].model_dump()})))
    assert [file.path for file in load_moe_configs(ours, theirs)] == ["b.toml", "other.toml"]
    assert [file.path for file in load_moe_configs(ours, ours)] == ["a.toml", "other.toml"]
    assert load_moe_configs(tmp_path / "none") == ()


def test_a_fleets_files_are_part_of_its_catalogue(tmp_path: Path) -> None:
    before = load_catalogue(tmp_path).moe_configs
    write(tmp_path, "files/moe_configs/a.toml", canonical_text(kernel()))
    assert {file.path for file in load_catalogue(tmp_path).moe_configs} - {file.path for file in before} == {"a.toml"}
    assert load_catalogue().moe_configs == before


def test_the_version_of_triton_decides_between_files_of_one_kernel() -> None:
    files = tuple(file_of(kernel(triton=version), version) for version in ("3.10.0", "3.6.0", "3.8.1"))

    def best(triton: str | None) -> str:
        found = best_for(files, kernel().kernel, triton)
        assert found is not None
        return found.path

    assert [best(v) for v in ("3.8.1", "3.9.0", "3.1.0", "4.0.0", None)] == [
        "3.8.1", "3.8.1", "3.6.0", "3.10.0", "3.10.0"
    ]  # fmt: skip
    assert best_for(files, kernel(width=192).kernel, "3.6.0") is None


def test_a_file_gets_a_name_that_says_what_is_in_it() -> None:
    folder = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition"
    assert path_of(kernel()) == f"{folder}/E32_N1536_fp8_w8a8_128x128_triton-3.6.0.toml"
    assert path_of(kernel(dtype="", block_shape=None)) == f"{folder}/E32_N1536_triton-3.6.0.toml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("experts = 32", "experts = 0", "experts: input should be greater than or equal to 1"),
        ('triton = "3.6.0"', 'triton = "new"', "triton: string should match pattern"),
        ("num_warps = 4", "num_warps = 4\nwarps = 2", "launches.1.warps: unknown key"),
        ("[launches.1]\nBLOCK_SIZE_M = 16\n", "[launches.1]\n", "launches.1.BLOCK_SIZE_M: missing"),
        ("[launches.64]", "[launches.all]", "launches.all: input should be a valid integer"),
        ('licence = "a test"\n', "", "provenance.licence: missing"),
        ("[provenance]", "[provenance", "Expected ']'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = canonical_text(kernel())
    assert old in text
    path = write(tmp_path, "bad.toml", text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_moe_configs(tmp_path)
    assert caught.value.message.startswith(f"{path}: {said}")
    assert caught.value.hint == "write it as in docs/moe_configs.md, or with rigup tune"


def test_two_files_about_one_kernel_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", canonical_text(kernel()))
    second = write(tmp_path, "b.toml", canonical_text(kernel()))
    with pytest.raises(InputError) as caught:
        load_moe_configs(tmp_path)
    assert caught.value.message == (
        f"{second}: E=32,N=1536 fp8_w8a8 on NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, Triton 3.6.0 "
        "is also in a.toml"
    )
