"""The Python environment of the evaluation harness on the controlling machine: resolves it for a lock and installs it.

It lives in ~/.cache/rigup/eval under a hash of its contents. A marker file shows that the installation finished.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.utils import parse_wheel_filename

from rigup.artifacts import ARCHITECTURES, Architecture, LockedHarness, LockedUv
from rigup.cache import cache_folder
from rigup.catalogue.engine_facts import EnvironmentRecipe
from rigup.catalogue.tools.evaluation import evaluation
from rigup.errors import HostFailed, InputError, MissingTool
from rigup.lock import Lock
from rigup.sources.downloads import locked
from rigup.sources.package_index import project_files
from rigup.sources.python_environment import resolve_project
from rigup.sources.uv import run_uv, uv_program
from rigup.sources.wheel_tags import by_release

WHOLE = "whole"
WHAT = "the evaluation harness"
LOCK_HINT = "pin it for this machine: rigup lock --upgrade eval"


def this_python() -> str:
    """The minor version of the Python that runs rigup, for example "3.12"; the harness runs on the same one."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_architecture() -> Architecture:
    """The architecture of this machine. Raises MissingTool if the lock cannot hold wheels for it."""
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in ARCHITECTURES:
        raise MissingTool(
            f"{WHAT} is not locked for {platform.system()} on {machine}", "run rigup eval on a Linux machine"
        )
    return machine


def resolve_harness(program: Path, version: str | None = None) -> LockedHarness:
    """The harness with all its dependencies, for this machine; without a version, the newest release.

    program: the path of uv. Raises InputError if the release does not exist or a package has no wheel, and Unreachable.
    """
    facts, architecture, python = evaluation(), this_architecture(), this_python()
    released = sorted(by_release(project_files(facts.project)), reverse=True)
    if version is None:
        version = next((str(known) for known in released if not known.is_prerelease), None)
    if version is None or version not in {str(known) for known in released}:
        known = ", ".join(str(known) for known in released[:5]) or "none"
        message = f"--upgrade eval: pip's package index has no {facts.project} {version or ''}".rstrip()
        raise InputError(message, f"choose from: {known}")
    recipe = EnvironmentRecipe(
        project=f"{facts.project}[{facts.extra}]",
        python=python,
        python_from="os",
        excludes=facts.excludes,
        source=facts.source,
    )
    files = resolve_project(program, f"{facts.project} {version}", recipe, version, architecture)
    return LockedHarness(version=version, architecture=architecture, python=python, files=files)


def locked_harness(lock: Lock) -> tuple[LockedHarness, LockedUv]:
    """The harness and uv that the lock pins for this machine. Raises MissingTool if it pins none for it."""
    found = lock.harness(this_python(), this_architecture())
    if found is not None and lock.uv is not None:
        return found, lock.uv
    others = ", ".join(f"Python {h.python} on {h.architecture}" for h in lock.harnesses)
    here = f"Python {this_python()} on {this_architecture()}"
    problem = f"is locked for {others}, and this is {here}" if others else "is not in rigup.lock"
    raise MissingTool(f"{WHAT} {problem}", LOCK_HINT)


def install_harness(harness: LockedHarness, uv: LockedUv, log: Callable[[str], None]) -> Path:
    """The path of a Python with the harness; installs the locked wheels first if necessary. Raises HostFailed."""
    content = json.dumps([harness.model_dump(), uv.version, sys.base_prefix], sort_keys=True)
    folder = cache_folder() / "eval" / hashlib.sha256(content.encode()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / WHOLE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            log(f"installing lm_eval {harness.version}: {len(harness.files)} packages")
            _make(folder, harness, uv_program(uv))
            (folder / WHOLE).touch()
    return folder / "bin/python"


def _make(folder: Path, harness: LockedHarness, program: Path) -> None:
    """Creates the environment from exactly the locked wheels."""
    _uv(program, "venv", "--quiet", "--python", sys.executable, str(folder))
    wanted = folder / "requirements.txt"
    pinned = [(*parse_wheel_filename(file)[:2], sha256) for file, sha256 in sorted(harness.files.items())]
    wanted.write_text("".join(f"{name}=={version} --hash=sha256:{sha256}\n" for name, version, sha256 in pinned))
    words = ("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:")
    _uv(program, *words, "--python", str(folder / "bin/python"), "--requirements", str(wanted))


def _uv(program: Path, *words: str) -> None:
    done = run_uv(program, words)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if not line.startswith("warning")), "uv failed")
        raise HostFailed(f"cannot install {WHAT}: {reason}", "use the package index that the lock was made from")
