"""A build from source, with a cmake that only writes down what it was told."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

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


def test_cmake_reads_the_releases_own_text_after_each_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, work, result, programs = (tmp_path / name for name in ("told", "work", "result", "programs"))
    programs.mkdir()
    (programs / "cmake").write_text(CMAKE.format(told=told, work=work))
    (programs / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (tmp_path / "CMakeLists.txt").write_text("")
    with tarfile.open(tmp_path / "archive", "w") as tar:
        tar.add(tmp_path / "CMakeLists.txt", "engine-7/CMakeLists.txt")
    build_source.main(
        {
            "archive": str(tmp_path / "archive"),
            "sha256": hashlib.sha256((tmp_path / "archive").read_bytes()).hexdigest(),
            "root": "engine-7",
            "flags": ["-DX=1"],
            "cmake": "set(Y 2)\n",
            "targets": ["server"],
            "work": str(work),
            "result": str(result),
            "check": ["bin/server"],
            "expect": "build 7",
            "manifest": {"name": "engine"},
        }
    )
    configured, built, read = told.read_text().splitlines()
    assert configured.endswith(f"-G Ninja -DCMAKE_PROJECT_INCLUDE={work}/included.cmake -DX=1")
    assert (built, read) == (f"--build {work}/build --target server", "set(Y 2)")
    assert json.loads((result / "manifest.json").read_text()) == {"name": "engine", "version_output": "build 7"}
    assert not work.exists()
