"""The harness's environment: resolved by the real uv at an index on loopback, made of those wheels and no others."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedHarness
from rigup.errors import HostFailed, InputError, MissingTool
from rigup.lock import Lock, load_lock
from rigup.lockfile.text import lock_text
from rigup.sources import evaluation_environment
from rigup.sources.evaluation_environment import install_harness, locked_harness, resolve_harness, this_python
from tests.unit.sources.local_uv import UV, local_uv
from tests.unit.sources.stand_in_index import StandInIndex, index_of_pip

HARNESS = "lm_eval-0.4.13-py3-none-any.whl"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInIndex]:
    """An index with a harness and what it asks for, of which one package has no wheel."""
    uv = local_uv()
    with index_of_pip(monkeypatch, tmp_path / "cache") as index:
        monkeypatch.setattr(evaluation_environment, "uv_program", lambda locked: uv)
        index.hold(HARNESS, "pure>=1", "sqlitedict", 'for-api; extra == "api"', members={"lm_eval/__init__.py": b""})
        index.hold("lm_eval-0.5.0.dev1-py3-none-any.whl", "pure>=1")
        index.hold("pure-1.2-py3-none-any.whl", members={"pure.py": b"value = 1\n"})
        index.hold("for_api-1.0-py3-none-any.whl")
        index.hold("sqlitedict-2.1.0.tar.gz")
        yield index


def test_a_release_that_is_not_there_is_told_with_those_that_are(index: StandInIndex) -> None:
    with pytest.raises(InputError) as caught:
        resolve_harness(local_uv(), "0.4.99")
    assert caught.value.message == "--upgrade eval: pip's package index has no lm_eval 0.4.99"
    assert caught.value.hint == "choose from: 0.5.0.dev1, 0.4.13"


def test_a_file_that_only_looks_like_a_wheel_is_passed_over(index: StandInIndex) -> None:
    index.files["simple"]["lm_eval-9.whl"] = b"no tags"
    with pytest.raises(InputError, match=r"has no lm_eval 0\.4\.99$"):
        resolve_harness(local_uv(), "0.4.99")


def test_the_newest_release_is_locked_and_made_once_without_what_has_no_wheel(index: StandInIndex) -> None:
    said: list[str] = []
    locked = resolve_harness(local_uv())
    assert (locked.version, locked.python) == ("0.4.13", this_python())
    assert sorted(locked.files) == ["for_api-1.0-py3-none-any.whl", HARNESS, "pure-1.2-py3-none-any.whl"]
    python = install_harness(locked, UV, said.append)
    ask = [str(python), "-I", "-c", "import lm_eval, pure; print(pure.value)"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "1\n"
    assert install_harness(locked, UV, said.append) == python
    assert said == ["installing lm_eval 0.4.13: 3 packages"]
    # one that was cut short does not count
    (python.parent.parent / "whole").unlink()
    assert install_harness(locked, UV, said.append) == python
    assert len(said) == 2


def test_another_file_under_a_locked_name_is_not_installed(index: StandInIndex) -> None:
    locked = resolve_harness(local_uv())
    index.hold("pure-1.2-py3-none-any.whl", members={"pure.py": b"value = 2\n"})
    with pytest.raises(HostFailed) as caught:
        install_harness(locked, UV, lambda line: None)
    assert caught.value.message.startswith("cannot install the evaluation harness: ")
    assert "\n" not in caught.value.message


def other(python: str) -> LockedHarness:
    return LockedHarness(version="0.4.13", python=python, files={HARNESS: "0" * 64})


def test_a_lock_keeps_one_for_each_kind_of_machine(tmp_path: Path) -> None:
    lock = Lock(harnesses=(other("3.12"), other("3.11")), uv=UV)
    (tmp_path / "rigup.lock").write_text(lock_text(lock))
    read = load_lock(tmp_path / "rigup.lock")
    assert read.harness("3.11", "x86_64") == other("3.11")
    assert lock_text(read) == lock_text(lock)
    assert locked_harness(Lock(harnesses=(other(this_python()),), uv=UV)) == (other(this_python()), UV)


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        (Lock(), "the evaluation harness is not in rigup.lock"),
        (
            Lock(harnesses=(other("3.9"),), uv=UV),
            f"the evaluation harness is locked for Python 3.9 on x86_64, and this is Python {this_python()} on x86_64",
        ),
    ],
)
def test_what_is_not_locked_is_said(lock: Lock, message: str) -> None:
    with pytest.raises(MissingTool) as caught:
        locked_harness(lock)
    assert (caught.value.message, caught.value.hint) == (message, "pin it for this machine: rigup lock --upgrade eval")
