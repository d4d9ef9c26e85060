"""The lists of what engines can serve: complete, and a fleet's own over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rigup.catalogue import option_names
from rigup.catalogue.abilities import (
    FOLDER,
    KINDS,
    Abilities,
    AbilityList,
    package,
)
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.data_files import list_text, read_lists
from rigup.catalogue.versions import in_ranges
from rigup.errors import InputError
from rigup.service import EngineName
from tests.golden.engine_lists import extended, ranges_of

CATALOGUE = load_catalogue()
OWN = AbilityList(
    engine="vllm",
    version="0.33.0",
    file="vllm-0.33.0.whl",
    sha256="a" * 64,
    architectures=frozenset({"OursForCausalLM"}),
    quantizations=frozenset({"fp8"}),
    tool_parsers=frozenset({"ours"}),
)


@pytest.mark.parametrize("engine", CATALOGUE.engines, ids=lambda engine: engine.name)
def test_every_release_of_the_toolkit_was_read_from_the_package_that_its_options_are_of(engine) -> None:  # type: ignore[no-untyped-def]
    for release in engine.versions:
        found = package(engine.name, release.version)
        assert release.abilities.read
        assert found == option_names.package(engine.name, release.version), release.version
        assert not release.wheels or release.wheels[found["file"]] == found["sha256"]
        assert len(release.abilities.names("architectures")) > 100


@pytest.mark.parametrize(
    ("engine", "version", "kind", "there", "absent"),
    [
        ("vllm", "0.12.0", "architectures", "Qwen3NextForCausalLM", "MiniMaxM3SparseForConditionalGeneration"),
        ("vllm", "0.33.0", "architectures", "MuseSparkForConditionalGeneration", "QWenLMHeadModel"),
        ("vllm", "0.23.0", "quantizations", "gguf", "modelopt_nothing"),
        ("vllm", "0.24.0", "quantizations", "modelopt_mxfp8", "gguf"),
        ("vllm", "0.33.0", "tool_parsers", "minimax_m3", "minimax-m3"),
        ("sglang", "0.5.23", "reasoning_parsers", "minimax-m3", "minimax_m3"),
        ("sglang", "0.5.12", "architectures", "DeepseekV4ForCausalLM", "KimiK3ForConditionalGeneration"),
        ("llama.cpp", "b11434", "architectures", "glm5-next", "clip"),
        ("llama.cpp", "b11434", "quantizations", "nvfp4", "DEPRECATED"),
    ],
)
def test_what_a_release_has(engine: EngineName, version: str, kind: str, there: str, absent: str) -> None:
    abilities = Abilities(engine=engine, version=version)
    assert kind in KINDS
    assert (abilities.has(kind, there), abilities.lacks(kind, there)) == (True, False)
    assert (abilities.has(kind, absent), abilities.lacks(kind, absent)) == (False, True)


def test_a_release_that_was_not_read_counts_as_the_newest_before_it() -> None:
    later, between = Abilities(engine="vllm", version="0.34.0"), Abilities(engine="vllm", version="0.23.5")
    assert (later.listed, between.listed) == ("0.33.0", "0.23.0")
    assert later.has("architectures", "MiniMaxM2ForCausalLM")
    assert not later.lacks("architectures", "Glm6ForCausalLM")


def test_a_fleets_own_list_is_what_counts() -> None:
    abilities = Abilities(
        engine="vllm", version="0.33.0", own=OWN, added={"architectures": {"MoreModel": "our plugin"}}
    )
    assert abilities.names("architectures") == {"OursForCausalLM", "MoreModel"}
    assert abilities.lacks("architectures", "MiniMaxM2ForCausalLM")
    assert abilities.names("tool_parsers") == {"ours"}
    assert abilities.source("architectures", "MoreModel") == "our plugin"
    assert abilities.source("architectures", "OursForCausalLM") == f"vllm-0.33.0.whl, sha256 {'a' * 64}"


def test_llama_cpps_names_of_classes() -> None:
    abilities = Abilities(engine="llama.cpp", version="b11434")
    assert abilities.converted("Qwen3_5MoeForConditionalGeneration") == "qwen35moe"
    assert abilities.converted("Glm6ForCausalLM") is None


def test_a_list_is_written_and_read(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(list_text(OWN))
    assert read_lists(tmp_path, AbilityList) == (OWN,)
    (tmp_path / "own.json").write_text('{"engine": "vllm"}')
    with pytest.raises(InputError) as error:
        read_lists(tmp_path, AbilityList)
    assert error.value.message == f"{tmp_path}/own.json: version: Field required"


def test_a_fleets_list_reaches_its_catalogue(tmp_path: Path) -> None:
    folder = tmp_path / "catalogue" / "engines" / "abilities"
    folder.mkdir(parents=True)
    (folder / "own.json").write_text(list_text(OWN))
    release = load_catalogue(tmp_path).engines_by_name["vllm"].version("0.33.0")
    assert release is not None and release.abilities.own == OWN


@pytest.mark.parametrize(
    ("known_in", "ranges"),
    [
        (set(), ""),
        ({"0.1"}, "0.1"),
        ({"0.1", "0.2", "0.10"}, "0.1..0.10"),
        ({"0.1", "0.10", "0.11"}, "0.1 0.10..0.11"),
        ({"0.2", "0.11"}, "0.2 0.11"),
    ],
)
def test_ranges(known_in: set[str], ranges: str) -> None:
    versions = ("0.1", "0.2", "0.10", "0.11")
    assert ranges_of(known_in, versions) == ranges
    assert {version for version in versions if in_ranges(version, ranges)} == known_in


def test_a_release_is_added_to_a_list_between_others() -> None:
    before = {
        "versions": ["0.1", "0.3"],
        "packages": {"0.1": {}, "0.3": {}},
        "architectures": {"A": "0.1..0.3", "B": "0.3"},
    }
    grown = extended(before, "0.2", {"file": "x"}, {"architectures": {"A", "C"}})
    assert grown["versions"] == list(grown["packages"]) == ["0.1", "0.2", "0.3"]
    assert grown["architectures"] == {"A": "0.1..0.3", "B": "0.3", "C": "0.2"}


def test_lists_are_small() -> None:
    for path in FOLDER.glob("*.json"):
        data = json.loads(path.read_text())
        assert path.stat().st_size < 60_000
        assert data["source"] and data["versions"]
