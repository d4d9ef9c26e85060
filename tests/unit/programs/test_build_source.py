"""A build from source, with a cmake that only writes down what it was told."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import build_source

CMAKE = """#!/bin/sh
echo "$@" >> {told}
[ "$1" = --build ] || exit 0
mkdir -p "$2/bin"
printf '#!/bin/sh\\necho build 7\\n' > "$2/bin/server"
chmod 755 "$2/bin/server"
cat {work}/included.cmake >> {told}
"""


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What cmake was told, a line a call."""
    told, programs = tmp_path / "told", tmp_path / "programs"
    programs.mkdir()
    (programs / "cmake").write_text(CMAKE.format(told=told, work=tmp_path / "work"))
    (programs / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return told


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def job(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "CMakeLists.txt").write_text("")
    with tarfile.open(folder / "archive", "w") as tar:
        tar.add(folder / "CMakeLists.txt", "engine-7/CMakeLists.txt")
    return {
        "archive": str(folder / "archive"),
        "sha256": sha256(folder / "archive"),
        "root": "engine-7",
        "flags": ["-DX=1"],
        "cmake": "set(Y 2)\n",
        "targets": ["server"],
        "library": None,
        "judge": {},
        "work": str(folder / "work"),
        "result": str(folder / "result"),
        "check": ["bin/server"],
        "expect": "build 7",
        "manifest": {"name": "engine"},
        **more,
    }


def test_cmake_reads_the_releases_own_text_after_each_project(told: Path, tmp_path: Path) -> None:
    work, result = tmp_path / "work", tmp_path / "result"
    build_source.main(job(tmp_path))
    configured, built, read = told.read_text().splitlines()
    assert configured.endswith(f"-G Ninja -DCMAKE_PROJECT_INCLUDE={work}/included.cmake -DX=1")
    assert (built, read) == (f"--build {work}/build --target server", "set(Y 2)")
    assert json.loads((result / "manifest.json").read_text()) == {"name": "engine", "version_output": "build 7"}
    assert not work.exists()


def library(folder: Path) -> dict[str, str]:
    with zipfile.ZipFile(folder / "some.whl", "w") as wheel:
        for name in ("nvidia/some/include/some.h", "nvidia/some/lib/libsome.so.2", "some.dist-info/METADATA"):
            wheel.writestr(name, name)
    path = folder / "some.whl"
    return {"path": str(path), "sha256": sha256(path), "folder": "nvidia/some", "file": "lib/libsome.so.2"}


def test_a_library_is_below_the_build_tree_and_then_beside_the_program(told: Path, tmp_path: Path) -> None:
    flags = ["-DINCLUDE={library}/include", "-DX={version}"]
    build_source.main(job(tmp_path, flags=flags, library=library(tmp_path)))
    configured, *_ = told.read_text().splitlines()
    assert configured.endswith(f" -DINCLUDE={tmp_path}/work/build/library/nvidia/some/include -DX={{version}}")
    kept = {path.name: path for path in (tmp_path / "result/bin").iterdir()}
    assert set(kept) == {"server", "libsome.so.2"}
    assert kept["libsome.so.2"].read_text() == "nvidia/some/lib/libsome.so.2"
    assert not kept["libsome.so.2"].is_symlink(), "builders send plain files"


def test_a_wheel_that_is_not_the_locked_one_ends_the_build_before_it_begins(told: Path, tmp_path: Path) -> None:
    wrong = {**library(tmp_path), "sha256": "0" * 64}
    with pytest.raises(SystemExit, match=r"^some\.whl: sha256 is .*, not the locked 0000"):
        build_source.main(job(tmp_path, library=wrong))
    assert not told.exists() and not (tmp_path / "result").exists()


RULES = """import sys
sys.exit("fattn.cu: nothing begins with bool x") if "{why}" else print("static int rule;")
"""


@pytest.mark.parametrize(
    ("why", "program", "printed"),
    [
        ("", '#include "cuda_rules.h"\nint main() { return rule; }', ""),
        ("", "int main() { return moved(); }", "no judge: "),
        ("gone", "int main() {}", "no judge: fattn.cu: nothing begins with bool x"),
    ],
)
def test_a_judge_that_does_not_compile_keeps_no_build_from_being_made(
    why: str, program: str, printed: str, told: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"cuda_rules.py": RULES.format(why=why), "judge.cpp": program}
    build_source.main(job(tmp_path, judge=sources))
    kept = {path.name for path in (tmp_path / "result/bin").iterdir()}
    assert kept == ({"server"} if printed else {"server", build_source.JUDGE})
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "gib", "words"),
    [
        ("-DGGML_CUDA=ON", 64, ("--parallel", "21")),
        ("-DGGML_CUDA=ON", 512, ()),
        ("-DGGML_CUDA=ON", 2, ("--parallel", "1")),
        ("-DGGML_CUDA=OFF", 64, ()),
    ],
)
def test_no_more_cuda_compilers_run_at_once_than_the_memory_is_enough_for(
    flag: str, gib: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_source.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(build_source.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gib * 2**18}.get)
    assert build_source.at_once([flag]) == words
