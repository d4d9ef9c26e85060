"""vLLM's commands of the example systems and the catalogue's models, parsed by its own argparse on a CPU.

The requirements are those of the locked CPU variant, installed once into the cache; of the release itself only the
Python files are needed, read out of its wheel by ranges.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.option_names import package
from rigup.checkpoints.describe import describe
from rigup.checkpoints.repository import local_repository
from rigup.commands import options as flags
from rigup.commands import speculative
from rigup.lock import Lock
from rigup.lockfile.vendor import vendor
from rigup.plan import Checkpoint
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.sources.package_index import project_files
from rigup.sources.python_environment import resolve_environment
from rigup.sources.remote_wheel import open_wheel
from rigup.sources.uv import run_uv
from tests.mistral_format import DENSE, LATENT, SEEING, VISION, write
from tests.nodes import bound
from tests.slow.catalogue_commands import catalogue_commands
from tests.unit.planner.drafts import drafting, head, helped
from tests.unit.sources.local_uv import local_uv

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("vLLM's package", "tests/golden/commands")]

ROOT = Path(__file__).parents[2]
DEFAULT = "0.33.0"
OLD_ONES_ASK_FOR = ("gguf==0.19.0", "diskcache==5.6.3")


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with what vLLM imports, made by uv from the wheels of a lock."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the CPU build of torch that pip finds here is for Python 3.11")
    release = load_catalogue().engines_by_name["vllm"].version("0.32.0")
    assert release is not None
    locked = resolve_environment(local_uv(), release, "cpu", "x86_64").environment
    digest = hashlib.sha256(locked.model_dump_json().encode()).hexdigest()[:16]
    folder = cache_folder() / "tests" / f"vllm-requirements-{digest}"
    if not (folder / "made").exists():
        house = cache_folder() / "tests" / "wheelhouse"
        vendor(Lock(environments=(locked,)), house, print)
        install(folder, house, locked)
        (folder / "made").touch()
    return folder / "bin" / "python"


def install(folder: Path, house: Path, locked: LockedEnvironment) -> None:
    pip = ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    wheels = [str(house / "wheels" / name) for name in locked.files]
    for words in (
        ["venv", "--clear", "--python", sys.executable, str(folder)],
        [*pip, "--no-deps", "--no-index", *wheels],
        [*pip, "--no-deps", *OLD_ONES_ASK_FOR],
    ):
        done = run_uv(local_uv(), words)
        assert done.returncode == 0, done.stderr


def unpacked(version: str) -> Path:
    """The Python files of a release, with a record that makes it one for CPUs."""
    listed = package("vllm", version)
    folder = cache_folder() / "tests" / f"vllm-{version}-{listed['sha256'][:16]}"
    if not (folder / "whole").exists():
        wheel = next(file for file in project_files("vllm") if file.name == listed["file"])
        with open_wheel(wheel) as opened:
            opened.extractall(folder, [name for name in opened.namelist() if name.endswith(".py")])
        record = folder / f"vllm-{version}+cpu.dist-info"
        record.mkdir(exist_ok=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
        (folder / "whole").touch()
    return folder


def commands(version: str) -> dict[str, list[str]]:
    """The arguments of every example system that takes this release where it may choose, by group and host."""
    projects = [load_project(str(ROOT / "inventories" / f"{name}.py")) for name in ("seeds", "across_hosts")]
    plans = [plan for project in projects for plan in plan_project(project, Lock(engines={"vllm": version}))]
    mine = [plan for plan in plans if plan.build and (plan.build.engine, plan.build.version) == ("vllm", version)]
    assert {plan.rank for plan in mine} == {0, 1, 2}
    run = [plan for plan in bound(mine) if plan.command]  # where Ray alone runs there is no command
    return {f"{plan.group} {plan.service.name} {plan.host}": list(plan.command[2:]) for plan in run}


def answer(python: Path, version: str, program: str, question: object) -> Any:
    """What one of the programs beside this file prints last, with the code of a release."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked(version)), "VLLM_LOGGING_LEVEL": "ERROR"}
    words = [str(python), str(Path(__file__).with_name(program))]
    done = subprocess.run(words, input=json.dumps(question), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def parsed(python: Path, version: str, arguments: list[list[str]]) -> tuple[set[str], list[list[str]]]:
    found = answer(python, version, "parse_vllm_arguments.py", arguments)
    return set(found["options"]), found["said"]


@pytest.mark.parametrize("version", ["0.33.0", "0.20.0"])
def test_vllm_makes_of_params_json_the_class_that_it_is_asked_for(python: Path, version: str, tmp_path: Path) -> None:
    """Told the format, as plans do, and by itself."""
    every = {
        "dense": DENSE,
        "dense_seeing": {**DENSE, "vision_encoder": VISION},
        "latent": LATENT,
        "latent_seeing": SEEING,
    }
    classes = {}
    for name, params in every.items():
        folder = write(tmp_path / name, params)
        classes[str(folder)] = describe(local_repository(folder, f"org/{name}"), None, {}).checkpoint.mistral_class
    asked = [(folder, form) for folder in classes for form in ("auto", "mistral")]
    said = answer(python, version, "read_vllm_configurations.py", asked)
    inner = {name: classes[str(tmp_path / name.removesuffix("_seeing"))] for name in every}
    assert said == [[[classes[folder]], [inner[Path(folder).name]]] for folder, _ in asked]


@pytest.mark.parametrize("version", [DEFAULT, "0.12.0"])
def test_every_example_system(python: Path, version: str) -> None:
    known = commands(version)
    assert known
    for kind, draft in {"mtp": drafting(), "draft": helped(), "eagle": helped(draft=head())}.items():
        files = Checkpoint(repo="org/small", quant="BF16", bytes=1) if draft.draft and draft.draft.model else None
        known[f"speculative {kind}"] = ["/weights", *flags.words(speculative.drafting(draft, files))]
    nonsense = [*next(iter(known.values())), "--no-such-option", "1"]
    options, said = parsed(python, version, [*known.values(), nonsense])
    print(f"vllm {version}: {len(known)} commands, {len(options)} options")
    assert {name: complaint for name, complaint in zip(known, said, strict=False) if complaint} == {}
    assert "unrecognized arguments: --no-such-option" in said[-1][0]


@pytest.mark.rests_on("the planner", "the data")
def test_every_model_of_the_catalogue(python: Path) -> None:
    known = catalogue_commands("vllm")
    _, (*said, nonsense) = parsed(python, DEFAULT, [*map(list, known), [*next(iter(known)), "--no-such-option", "1"]])
    print(f"vllm {DEFAULT}: {len(known)} commands of the catalogue's models")
    assert {name: complaint for name, complaint in zip(known.values(), said, strict=True) if complaint} == {}
    assert "unrecognized arguments" in nonsense[0]
