"""Bad input of `rigup tune`, said before any host is asked."""

from __future__ import annotations

import io
import json
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.cli import main, tune
from rigup.cli.output.console import Console
from rigup.connection import connections, signals
from rigup.errors import Refused, Unreachable
from rigup.facts.probe import Probe, UnitState
from rigup.lock import Lock, LockedCheckpoint, LockedDriver, LockedFile, LockedSource, load_lock
from rigup.lockfile.text import lock_text
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project, plans_to_apply
from rigup.tuning import run as tuning
from tests.command_line import CommandLine

REPO = "MiniMaxAI/MiniMax-M2.5"
RIG = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
SERVICE = {"checkpoint": REPO, "engine": "vllm", "version": "0.33.0", "flags": {"--moe-backend": "triton"}}
WEIGHTS = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
LOCK = Lock(
    driver=LockedDriver(version="580.178.04", branch="580"),
    uv=LockedUv(version="1.0", files={"uv-1.0-py3-none-manylinux.whl": "0" * 64}),
    environments=(
        LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.12", files={"triton-3.8.0-x.whl": "0" * 64}),
    ),
    checkpoints=(LockedCheckpoint(repo=REPO, quant="FP8", revision="1" * 40, files=(WEIGHTS,)),),
)


def described(root: Path, **services: dict[str, object]) -> CommandLine:
    line = CommandLine(root)
    wanted = services or {"minimax": SERVICE}
    line.describe(["a.example", "b.example"], f"rig = {RIG!r}\nservices = {wanted!r}\n")
    line.write("rigup.lock", lock_text(LOCK))
    return line


TOKENS_HINT = "--tokens 1,8,64,512"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("nosuch",), 'inventories/fleet.py: group "nosuch" does not exist', "choose from: boxes"),
        (("boxes", "--host", "c.lan"), "--host: c.lan is not in group boxes", "choose from: a.example, b.example"),
        (("boxes", "--service", "x"), '--service: boxes has no service "x"', "choose from: minimax"),
        (("boxes", "--tokens", "x"), '--tokens: "x" is not a list of numbers of tokens', TOKENS_HINT),
        (("boxes", "--tokens", "1,²"), '--tokens: "1,²" is not a list of numbers of tokens', TOKENS_HINT),
        (("boxes", "--runs", "3"), "--runs: 3 runs cannot distinguish a gain from noise", "use at least 5"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_exit_code_2(tmp_path: Path, words: tuple[str, ...], message: str, hint: str) -> None:
    done = described(tmp_path).call("tune", *words)
    assert done.code == 2
    said, hinted = done.err.splitlines()
    assert said == f"rigup: {message}" and hinted.endswith(hint)


def test_a_service_without_such_a_kernel_has_nothing_to_tune(tmp_path: Path) -> None:
    marlin = SERVICE | {"flags": {"--moe-backend": "marlin"}}
    done = described(tmp_path, minimax=marlin).call("tune", "boxes")
    assert done.code == 2
    assert done.err == (
        "rigup: group_data/boxes.py: services.minimax: vllm 0.33.0 with MiniMaxAI/MiniMax-M2.5 FP8 does not run "
        "a tunable kernel on this rig\n"
        "hint: use vLLM or SGLang with experts in block-wise FP8 or 16 bits, and flags that select Triton, such as "
        "--moe-backend triton for vLLM\n"
    )


def test_another_service_that_is_refused_does_not_stop_the_one_that_is_named(tmp_path: Path) -> None:
    refused = {"model": "MiniMax-M2.5", "context": 10**7, "port": 8001}
    line = described(tmp_path, minimax=SERVICE, other=refused)
    inventory = str(line.fleet / "inventories/fleet.py")
    asked = Namespace(inventory=inventory, limit=None, group="boxes", service="minimax")
    assert tune._plan(asked).service.name == "minimax"
    plans = plans_to_apply(load_project(inventory), "minimax")
    assert {host: [plan.service.name for plan in of_host] for host, of_host in plans.items()} == {
        "a.example": ["minimax"],
        "b.example": ["minimax"],
    }
    for name in (None, "other"):
        with pytest.raises(Refused, match=r"a\.example: other: .* 10,000,000"):
            tune._plan(Namespace(inventory=inventory, limit=None, group="boxes", service=name))
        with pytest.raises(Refused, match=r"a\.example: other: .* 10,000,000"):
            plans_to_apply(load_project(inventory), name)


def test_a_tuner_that_the_lock_lacks_is_pinned_in_it_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = described(tmp_path)
    pinned = LockedSource(
        engine="vllm", version="0.33.0", address="pypi:vllm==0.33.0", sha256="e" * 64, root="vllm-0.33.0"
    )
    asked: list[tuple[str, ...]] = []

    def pin(engine: str, version: str, address: str, root: str, cache: Path) -> LockedSource:
        asked.append((engine, version, address, root))
        return pinned

    monkeypatch.setattr(tune, "pin_source", pin)
    project = load_project(str(line.fleet / "inventories/fleet.py"))
    plan = plan_project(project)[0]
    said = io.StringIO()
    assert tune._source(project, plan, Console(file=said, width=160))[1] == pinned
    assert asked == [("vllm", "0.33.0", "pypi:vllm==0.33.0", "vllm-0.33.0")]
    assert load_lock(line.fleet / "rigup.lock") == LOCK.model_copy(update={"sources": (pinned,)})
    assert f"+ source vllm 0.33.0  pypi:vllm==0.33.0 sha256 {'e' * 12}" in said.getvalue()
    assert plan_project(project)[0].build == plan.build, "the build is the same with the tuner's archive in the lock"
    assert tune._source(project, plan, Console(file=said))[1] == pinned
    assert len(asked) == 1


def test_a_fleet_without_a_lock_of_its_own_is_locked_first(tmp_path: Path) -> None:
    line = described(tmp_path)
    project = load_project(str(line.fleet / "inventories/fleet.py"))
    plan = plan_project(project)[0]
    (line.fleet / "rigup.lock").unlink()
    with pytest.raises(Refused, match=r"rigup\.lock does not exist; the tuner's archive must be pinned in it"):
        tune._source(project, plan, Console(file=io.StringIO()))


@pytest.mark.parametrize(("there", "code", "state"), [(True, 1, "unchanged"), (False, 2, "unreachable")])
def test_a_script_hears_why_nothing_was_tuned(
    there: bool,
    code: int,
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the answer is "no", and where no host can be asked."""

    def connect(run: Any, take_lease: bool) -> None:
        for name, result in run.results.items():
            result.probe = Probe(units={"chat": UnitState("active")})
            if not there:
                result.fail("unreachable", Unreachable(f"{name}: nobody there"))

    monkeypatch.chdir(described(tmp_path).fleet)
    monkeypatch.setattr(connections.Connections, "begin", lambda self: None)
    monkeypatch.setattr(signals, "stop_on_signals", nullcontext)
    monkeypatch.setattr(tune, "_source", lambda *_: (None, None))
    monkeypatch.setattr(tune, "tuner_files", lambda *_: {})
    monkeypatch.setattr(tuning.TuningRun, "connect", connect)
    monkeypatch.setattr(tune, "_agreed", lambda *_: False)
    assert main.main(["tune", "boxes", "--json"]) == code
    said = json.loads(capsys.readouterr().out)
    assert (said["kept"], said["gain"]) == (None, None)
    assert [host["state"] for host in said["hosts"]] == [state, state]
