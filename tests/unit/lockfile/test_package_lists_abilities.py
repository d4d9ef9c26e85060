"""What a fleet's own releases can serve, read out of the wheel or the archive that is locked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.cache import cache_folder
from rigup.catalogue.abilities import AbilityList, package
from rigup.catalogue.data_files import read_lists
from rigup.lock import LockedSource
from rigup.lockfile.package_lists import abilities_with_archive, abilities_with_wheel, write_abilities
from rigup.sources.package_index import IndexFile
from rigup.sources.python_environment import Resolution
from tests.serving import serving
from tests.unit.catalogue.engine_packages.test_reading import LLAMA_CPP, VLLM, archive
from tests.unit.sources.stand_in_index import StandInIndex

NAME = "vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInIndex]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(StandInIndex()) as index:
        yield index


def resolution(index: StandInIndex, members: dict[str, str], version: str = "0.34.0") -> Resolution:
    name = NAME.replace("0.34.0", version)
    sha256 = index.hold(name, members={path: text.encode() for path, text in members.items()})
    environment = LockedEnvironment(engine="vllm", version=version, python="3.12.16", files={name: sha256})
    return Resolution(environment, (), IndexFile(name, f"{index.url}/simple/files/{name}", sha256))


def source(folder: Path, members: dict[str, str]) -> LockedSource:
    """A locked source whose archive lies in the cache."""
    content = archive(folder, members).read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    cached = cache_folder() / "sources" / sha256
    cached.parent.mkdir(parents=True, exist_ok=True)
    cached.write_bytes(content)
    return LockedSource(
        engine="llama.cpp", version="b12000", address="https://example.org/a.tar.gz", sha256=sha256, root="tree-1"
    )


def test_a_release_from_wheels(index: StandInIndex, tmp_path: Path) -> None:
    said: list[str] = []
    resolved = resolution(index, VLLM)
    lists = abilities_with_wheel((), resolved, said.append)
    assert said == ["reading what vllm 0.34.0 can serve from its package"]
    assert (lists[0].file, lists[0].sha256) == (NAME, resolved.engine.sha256)
    assert "LlamaForCausalLM" in lists[0].architectures
    write_abilities(tmp_path / "lists", lists)
    assert read_lists(tmp_path / "lists", AbilityList) == lists
    asked = len(index.asked)
    assert abilities_with_wheel(lists, resolved, said.append) == lists
    assert (len(index.asked), len(said)) == (asked, 1)


def test_another_wheel_of_the_release_takes_its_place(index: StandInIndex, tmp_path: Path) -> None:
    lists = abilities_with_wheel((), resolution(index, VLLM), print)
    write_abilities(tmp_path / "lists", lists)
    grown = VLLM | {"vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"other": ()}'}
    (after,) = abilities_with_wheel(lists, resolution(index, grown), print)
    assert after.reasoning_parsers == {"other"}
    write_abilities(tmp_path / "lists", ())
    assert read_lists(tmp_path / "lists", AbilityList) == ()


def test_a_release_of_the_toolkit_is_not_read(index: StandInIndex) -> None:
    assert package("vllm", "0.33.0")
    assert abilities_with_wheel((), resolution(index, VLLM, "0.33.0"), print) == ()
    assert index.asked == []


def test_a_release_that_is_built_from_source(index: StandInIndex, tmp_path: Path) -> None:
    (found,) = abilities_with_archive((), source(tmp_path, LLAMA_CPP), print)
    assert (found.engine, found.version, found.file) == ("llama.cpp", "b12000", "llama.cpp-b12000.tar.gz")
    assert found.architectures == {"llama", "grok"}


def test_a_package_without_the_tables_counts_as_not_read(index: StandInIndex, tmp_path: Path) -> None:
    said: list[str] = []
    assert abilities_with_archive((), source(tmp_path, {"README": "moved"}), said.append) == ()
    assert said[1] == "llama.cpp b12000: cannot read what it can serve: the archive has no common/arg.cpp"
    broken = VLLM | {"vllm/model_executor/models/registry.py": "moved = 1"}
    assert abilities_with_wheel((), resolution(index, broken), said.append) == ()
    assert said[3] == (
        "vllm 0.34.0: cannot read what it can serve: no _VLLM_MODELS in vllm/model_executor/models/registry.py"
    )
