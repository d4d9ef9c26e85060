"""Names read out of the wheel that was locked, at a server with and without ranges, and plans that rest on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.catalogue import FOLDER, NAME_LISTS, load_catalogue
from rigup.catalogue.data_files import read_lists
from rigup.catalogue.option_names import NameList, package
from rigup.errors import InputError
from rigup.lock import Lock
from rigup.lockfile.package_lists import names_with, write_names
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project.planning import plan_service
from rigup.service import Service
from rigup.sources.package_index import IndexFile
from rigup.sources.python_environment import Resolution
from tests.hostile import bounded
from tests.serving import serving
from tests.unit.sources.stand_in_index import StandInIndex

NAME = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
ARGUMENTS = b"""
class EngineArgs:
    enforce_eager: bool = False

    def add_cli_args(parser):
        parser.add_argument("--model", "-m")
        parser.add_argument("--enforce-eager", action=BooleanOptionalAction)
"""
MEMBERS = {
    "vllm/engine/arg_utils.py": ARGUMENTS,
    "vllm/envs.py": b'environment_variables: dict = {"VLLM_OWN": 1, "VLLM_NEW": 2}',
    "vllm/_C.so": random.Random(3).randbytes(3_000_000),
}
OPTIONS = {"--model", "-m", "--enforce-eager", "--no-enforce-eager"}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInIndex]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(StandInIndex()) as index:
        yield index


def resolution(index: StandInIndex, sha256: str) -> Resolution:
    environment = LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.16", files={NAME: sha256})
    return Resolution(environment, (), IndexFile(NAME, f"{index.url}/simple/files/{NAME}", sha256))


def keep_names(folder: Path, resolved: Resolution, log: Callable[[str], None]) -> None:
    """As `rigup lock` does it, which writes when all else is known."""
    there = read_lists(folder, NameList)
    names = names_with(there, resolved, log)
    assert read_lists(folder, NameList) == there
    write_names(folder, names)


@pytest.mark.parametrize("ranges", [True, False])
def test_read_out_of_the_wheel_and_kept_with_its_hash(index: StandInIndex, tmp_path: Path, ranges: bool) -> None:
    sha256 = index.hold(NAME, members=MEMBERS)
    index.ranges = ranges
    said: list[str] = []
    keep_names(tmp_path / "flags", resolution(index, sha256), said.append)
    assert said == [f"reading the options of vllm 0.33.0 from {NAME}"]
    (names,) = read_lists(tmp_path / "flags", NameList)
    assert (names.options, names.variables) == (OPTIONS, {"VLLM_OWN", "VLLM_NEW"})
    assert ((names.engine, names.version, names.variant, names.architecture), names.file, names.sha256) == (
        ("vllm", "0.33.0", "cuda", "x86_64"),
        NAME,
        sha256,
    )
    asked = len(index.asked)
    if ranges:
        parts = [str(wanted)[6:].partition("-") for _, wanted in index.asked]
        assert sum(int(end) - int(start or 1) + 1 for start, _, end in parts) < 1_000_000
    else:
        assert asked == 2
    keep_names(tmp_path / "flags", resolution(index, sha256), said.append)
    assert (len(index.asked), len(said)) == (asked, 1)


def test_another_wheel_of_the_build_takes_its_place(index: StandInIndex, tmp_path: Path) -> None:
    keep_names(tmp_path, resolution(index, index.hold(NAME, members=MEMBERS)), lambda line: None)
    grown = MEMBERS | {"vllm/envs.py": b'environment_variables: dict = {"VLLM_OTHER": 1}'}
    second = index.hold(NAME, members=grown)
    keep_names(tmp_path, resolution(index, second), lambda line: None)
    (names,) = read_lists(tmp_path, NameList)
    assert (names.sha256, names.variables) == (second, {"VLLM_OTHER"})


def test_the_toolkits_list_of_the_same_wheel_is_enough(index: StandInIndex, tmp_path: Path) -> None:
    keep_names(tmp_path, resolution(index, package("vllm", "0.33.0")["sha256"]), lambda line: None)
    assert (index.asked, list(tmp_path.glob("*.json"))) == ([], [])


CANNOT = "cannot read its options"


def test_a_wheel_that_is_not_as_expected(index: StandInIndex, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        keep_names(tmp_path, resolution(index, index.hold(NAME, members={"vllm/envs.py": b"x = 1"})), print)
    assert error.value.message == f"{NAME}: {CANNOT}: no environment_variables in vllm/envs.py"
    index.files["simple"][NAME] = b"nothing like it"
    with pytest.raises(InputError) as error:
        keep_names(tmp_path, resolution(index, "0" * 64), print)
    assert error.value.message == f"{NAME}: not a valid wheel"
    del index.files["simple"][NAME]
    with pytest.raises(InputError) as error:
        keep_names(tmp_path, resolution(index, "0" * 64), print)
    assert error.value.message == f"{NAME}: HTTP 404"
    assert list(tmp_path.glob("*.json")) == []


SOURCES = {
    "nested": b"-" * 200_000 + b"1",
    "chained": b"a" + b".b" * 200_000,
    "half a character": b'p.add_argument("--\\ud800")',
    "a name without end": b'p.add_argument("--' + b"x" * 100_000 + b'")',
    "not Python": b"\0" * 1000,
    "a long number": b"x = " + b"9" * 10_000,
}


@pytest.mark.usefixtures("nothing_to_collect")
@pytest.mark.parametrize("source", SOURCES)
def test_source_that_python_cannot_read_is_one_error(index: StandInIndex, tmp_path: Path, source: str) -> None:
    members = MEMBERS | {"vllm/engine/arg_utils.py": SOURCES[source]}
    resolved = resolution(index, index.hold(NAME, members=members))
    error = read_error(lambda: keep_names(tmp_path, resolved, print))
    assert error.message.startswith(f"{NAME}: {CANNOT}: ")
    assert len(error.message) < 200 and not error.message.endswith(": ")


def read_error(read: Callable[[], None]) -> InputError:
    with bounded(20), pytest.raises(InputError) as error:
        read()
    return error.value


def test_a_plan_that_would_send_what_the_wheel_does_not_know_is_refused(index: StandInIndex, tmp_path: Path) -> None:
    asked = {"name": "chat", "checkpoint": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm", "version": "0.33.0"}
    rig = {"gpus": "4x RTX PRO 6000 Blackwell Workstation Edition", "host_memory_gib": 256}

    def planned(service: dict[str, object]) -> list[tuple[str, str]]:
        catalogue = load_catalogue(tmp_path)
        found = read_rig(rig, "test", catalogue)
        plan = plan_service("a", "b", found, Service.model_validate(asked | service), catalogue, Lock())
        return [(finding.rule, finding.message) for finding in plan.refusals]

    assert planned({}) == []
    assert planned({"flags": {"--own": True}}) == [("unknown-option", "vLLM 0.33.0 has no option --own")]
    folder = tmp_path / FOLDER / NAME_LISTS
    own = ARGUMENTS + b'        parser.add_argument("--own")\n'
    members = MEMBERS | {"vllm/engine/arg_utils.py": own}
    keep_names(folder, resolution(index, index.hold(NAME, members=members)), lambda line: None)
    refused = planned({"flags": {"--own": True}})
    assert ("unknown-option", "vLLM 0.33.0 does not have the option --max-model-len that the plan uses") in refused
    assert not [message for _, message in refused if "--own" in message or "--enforce-eager" in message]


def test_a_list_that_was_edited_into_nonsense(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER / NAME_LISTS
    folder.mkdir(parents=True)
    (folder / "own.json").write_text('{"engine": "vllm"}')
    with pytest.raises(InputError) as error:
        load_catalogue(tmp_path)
    assert error.value.message == f"{folder}/own.json: version: Field required"
    assert error.value.hint == "read it again: rigup lock --upgrade ENGINE"
