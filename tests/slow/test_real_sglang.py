"""SGLang installed from the wheels that a lock names, as far as it goes without a GPU, and asked about our commands.

Everything is as locked for x86_64 but Python, which is this machine's, torch, which is the build for CPUs, and what
only runs on a GPU, which is left out. The server itself cannot be started: torchvision is built for CUDA only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.option_names import known_options, known_values
from rigup.commands import options as flags
from rigup.commands import speculative
from rigup.commands.sglang import KEY_FILE
from rigup.lock import Lock
from rigup.plan import Checkpoint
from rigup.programs.build_environment import requirements
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.sources.package_index import find_links
from rigup.sources.python_environment import resolve_environment
from rigup.sources.uv import run_uv
from rigup.systemd.api_key import CREDENTIAL_NAME, wrapped
from roles.engine_environment import SGLANG_IMPORT
from tests.nodes import bound
from tests.slow.catalogue_commands import catalogue_commands
from tests.unit.planner.drafts import drafting, head, helped
from tests.unit.sources.local_uv import local_uv

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("SGLang's package", "tests/golden/commands")]

ROOT = Path(__file__).parents[2]
VERSION = "0.5.23"
# CUDA's libraries, the kernels on top of them, and what the index has for a CUDA torch only
FOR_GPUS = re.compile(
    r"(cuda|nccl|nvshmem4py|nvidia_(?!ml_py)|flash|humming|quack|tilelang|sgl_|sglang_kernel|torch)[^-]*-"
)


def locked() -> LockedEnvironment:
    """What `rigup lock` pins for this release and the Python of this machine."""
    release = load_catalogue().engines_by_name["sglang"].version(VERSION)
    assert release is not None
    recipe = release.environment("cuda")
    assert recipe is not None
    here = recipe.model_copy(update={"python": "3.11", "python_from": "os"})
    found = resolve_environment(local_uv(), release.model_copy(update={"environments": (here,)}), "cuda", "x86_64")
    assert found.environment.files[found.engine.name] == release.wheels[found.engine.name]
    return found.environment


def torch_for_cpus() -> tuple[dict[str, str], dict[str, str]]:
    """torch's wheel with its sha256, and its address if the index lacks it, as vLLM's build for CPUs is locked."""
    release = load_catalogue().engines_by_name["vllm"].version("0.32.0")
    assert release is not None
    environment = resolve_environment(local_uv(), release, "cpu", "x86_64").environment
    return {n: sha256 for n, sha256 in environment.files.items() if n.startswith("torch-")}, environment.addresses


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with SGLang, made by uv from hashes only."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the CPU build of torch that pip finds here is for Python 3.11")
    torch, addresses = torch_for_cpus()
    files = {name: sha256 for name, sha256 in locked().files.items() if not FOR_GPUS.match(name)}
    listed = requirements({**files, **torch}, addresses)
    folder = cache_folder() / "tests" / f"sglang-{VERSION}-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    if not (folder / "made").exists():
        install(folder, listed)
        (folder / "made").touch()
    return folder / "bin" / "python"


def install(folder: Path, listed: str) -> None:
    done = run_uv(local_uv(), ["venv", "--clear", "--python", sys.executable, str(folder)])
    assert done.returncode == 0, done.stderr
    wanted = folder / "requirements.txt"
    wanted.write_text(listed)
    words = ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), "-r", str(wanted)]
    words += ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    words += [word for place in find_links() for word in ("--find-links", str(place))]
    done = run_uv(local_uv(), words)
    assert done.returncode == 0, done.stderr


def commands() -> dict[str, list[str]]:
    """The arguments of every example system that takes this release where it may choose, by group and host."""
    projects = [load_project(str(ROOT / "inventories" / f"{name}.py")) for name in ("seeds", "across_hosts")]
    plans = [plan for project in projects for plan in plan_project(project, Lock(engines={"sglang": VERSION}))]
    mine = [plan for plan in plans if plan.build and (plan.build.engine, plan.build.version) == ("sglang", VERSION)]
    assert {plan.command[:3] for plan in mine} == {("bin/python", "-m", "sglang.launch_server")}
    assert {plan.rank for plan in mine} == {0, 1}
    return {f"{plan.group} {plan.service.name} {plan.host}": list(plan.command[3:]) for plan in bound(mine)}


def asked(command: tuple[str, ...], arguments: list[list[str]], **variables: str) -> Any:
    """What the program beside this file says of argument lists."""
    words = json.dumps(arguments)
    environment = {**os.environ, **variables}
    done = subprocess.run(command, input=words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def program(python: Path) -> tuple[str, ...]:
    return str(python), str(Path(__file__).with_name("parse_sglang_arguments.py"))


def rendered(arguments: list[str]) -> dict[str, Any]:
    """A command line as options with the values that they have in it."""
    found: dict[str, Any] = {}
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


def as_text(took: dict[str, Any]) -> dict[str, Any]:
    """What SGLang took, as a command line has it."""
    spelled = {option: value if value is True else str(value) for option, value in took.items()}
    objects = {option: value for option, value in took.items() if isinstance(value, dict)}
    return spelled | {option: json.dumps(value, separators=(",", ":")) for option, value in objects.items()}


def test_the_check_of_a_build_passes(python: Path) -> None:
    done = subprocess.run([str(python), "-I", "-c", SGLANG_IMPORT], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [VERSION]), done.stderr[-3000:]


def test_every_example_system(python: Path) -> None:
    known = commands()
    assert len(known) >= 3
    one = next(iter(known.values()))
    wrong = (
        ["--nsa-prefill-backend", "trtllm"],
        ["--cuda-graph-max-bs", "8"],
        ["--tool-call-parser", "minimax-m1"],
    )
    said = asked(program(python), [*known.values(), *([*one, *words] for words in wrong)])
    options, answers = said["options"], said["answers"]
    print(f"sglang {VERSION}: {len(known)} commands, {len(options)} options")
    for (name, arguments), answer in zip(known.items(), answers, strict=False):
        assert answer.get("error") is None, name
        assert as_text(answer["took"]) == rendered(arguments), name
    errors = [answer["error"].partition("error: ")[2] for answer in answers[len(known) :]]
    # gone since 0.5.9, and of two names that it became neither is meant: what the lists of names are for
    assert errors[0] == "unrecognized arguments: --nsa-prefill-backend trtllm"
    assert errors[1].startswith("ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode")
    assert errors[2].startswith("argument --tool-call-parser: invalid choice: 'minimax-m1'")
    assert "--nsa-prefill-backend" in known_options("sglang", "0.5.9")


@pytest.mark.rests_on("the planner", "the data")
def test_every_model_of_the_catalogue(python: Path) -> None:
    known = catalogue_commands("sglang")
    old = ["--model-path", "/weights", "--disable-cuda-graph"]
    *answers, deprecated = asked(program(python), [*map(list, known), old])["answers"]
    print(f"sglang {VERSION}: {len(known)} commands of the catalogue's models")
    said = [answer.get("error") or answer["deprecated"] for answer in answers]
    assert {name: complaint for name, complaint in zip(known.values(), said, strict=True) if complaint} == {}
    for (arguments, name), answer in zip(known.items(), answers, strict=True):
        assert as_text(answer["took"]) == rendered(list(arguments)), name
    assert len(deprecated["deprecated"]) == 1


def test_what_drafts_tokens(python: Path) -> None:
    """The parser takes any word for an algorithm: the class that the server makes of it says whether it is one."""
    files = Checkpoint(repo="org/small", quant="BF16", bytes=1)
    wanted = {
        "EAGLE": speculative.drafting(drafting("sglang"), None),
        "STANDALONE": speculative.drafting(helped("sglang"), files),
        "EAGLE3": speculative.drafting(helped("sglang", draft=head()), files),
    }
    words = [["--model-path", "/weights", *flags.words(options)] for options in wanted.values()]
    wrong = ["--model-path", "/weights", "--speculative-algorithm", "MEDUSA"]
    *answers, refused = asked(program(python), [*words, wrong])["answers"]
    assert [answer["drafts"] for answer in answers] == list(wanted)
    assert [as_text(answer["took"]) for answer in answers] == [rendered(each) for each in words]
    assert refused["drafts"] == "Unknown speculative algorithm name: MEDUSA"


def test_the_catalogue_has_the_names_and_values_of_the_real_parser(python: Path) -> None:
    options: dict[str, list[str]] = asked(program(python), [])["options"]
    assert options.keys() - {"-h", "--help"} == known_options("sglang", VERSION)
    listed = {option: sorted(values) for option in options if (values := known_values("sglang", VERSION, option))}
    assert {option: options[option] for option in listed} == listed
    assert {"--kv-cache-dtype", "--moe-runner-backend", "--fp8-gemm-backend"} <= listed.keys()


def test_the_key_comes_by_the_file_that_the_unit_writes(python: Path, tmp_path: Path) -> None:
    (tmp_path / CREDENTIAL_NAME).write_text("k3y-of-a-test\n")
    folders = {"CREDENTIALS_DIRECTORY": str(tmp_path), "RUNTIME_DIRECTORY": str(tmp_path)}
    one = next(iter(commands().values()))
    key_file = KEY_FILE.replace("${RUNTIME_DIRECTORY}", str(tmp_path))
    (answer,) = asked(wrapped("sglang", program(python)), [[*one, "--config", key_file]], **folders)["answers"]
    assert answer["key"] == "k3y-of-a-test"
    assert as_text(answer["took"]) == rendered(one)
