"""The real harness asks the pinned llama.cpp with a real small model on a booted machine, through rigup's tunnel.

The harness and its packages come from the package index, the build from this user's cache or is compiled.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.lab import demo_model
from rigup.project.inventory import toolkit_root
from tests.lab.fleet import Fleet, Run, wait_for
from tests.lab.fleet_fixtures import made_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.rests_on("the evaluation harness"),
]

TASKS = Path(__file__).parents[2] / "evaluation_tasks"
KEY = "sk-of-the-evaluation"
COLD_SECONDS = 2400
# alone on a machine, 40 s: importing the harness takes 14 s of a processor
BUSY_SECONDS = 500


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One machine that serves SmolLM2 with a key; the lock has the harness, and nobody has asked anything yet."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    (root / "key").write_text(f"{KEY}\n")
    (root / "key").chmod(0o600)
    with made_fleet(Fleet, "eval", root, demo_model.provide(), hosts=1) as fleet:
        fleet.describe(context=2048, listen="0.0.0.0", api_key_file="key")
        fleet.apply(seconds=COLD_SECONDS)
        assert "+ eval Python" in fleet.rigup("lock", "--upgrade", "eval").text
        yield fleet


def evaluate(fleet: Fleet, *words: str, expect: int = 0) -> Run:
    asked = ("--tasks", "rigup_sums", "--include-path", str(TASKS), "--questions", "10", "--json", *words)
    return fleet.rigup("eval", *asked, expect=expect, seconds=BUSY_SECONDS)


def result(run: Run) -> dict[str, Any]:
    (found,) = run.json["results"]
    return dict(found)


def test_scores_are_kept_by_checkpoint_and_compared(fleet: Fleet) -> None:
    found = result(evaluate(fleet))
    endpoint, task = found["endpoint"], found["tasks"]["rigup_sums"]
    assert (endpoint["host"], endpoint["service"], endpoint["engine"]) == (fleet.host.name, "chat", "llama.cpp")
    assert endpoint["plan"].startswith("sha256:") and endpoint["drift"] == []
    assert endpoint["checkpoint"]["repo"] == demo_model.REPOSITORY
    (score,) = task["scores"]
    print(f"{score['value']:.3f} +- {score['stderr']:.3f} of {task['questions']} sums in {found['seconds']} s")
    assert (task["version"], task["questions"], len(score["each"])) == (1.0, 10, 10)
    assert score["value"] == sum(score["each"]) / 10

    path = Path(found["file"])
    assert path.parent == fleet.root / "evaluations/QuantFactory_SmolLM2-135M-Instruct-GGUF/Q4_1"
    assert KEY not in path.read_text() and KEY not in fleet.runs[-1].text

    compared = fleet.rigup("eval", "--json", "--compare", str(path), str(path))
    (difference,) = compared.json["differences"]
    assert (difference["paired"], difference["change"], difference["verdict"]) == (True, 0, "no significant difference")


def test_a_task_that_nobody_knows(fleet: Fleet) -> None:
    run = evaluate(fleet, "--tasks", "rigup_nosuch", expect=2)
    (failed,) = run.json["failed"]
    message = failed["errors"][0]["message"]
    assert message.startswith("--tasks: ") and message.endswith(" rigup_nosuch")


def reload_ssh(fleet: Fleet, after: str) -> None:
    """Has SSH read its configuration again, and waits until it takes connections again."""
    fleet.host.tell(f"{after}; systemctl reload ssh")
    wait_for(lambda: fleet.host.says("true"), "SSH, reloaded")


def test_a_host_whose_ssh_forwards_nothing(fleet: Fleet) -> None:
    forbid = "/etc/ssh/sshd_config.d/90-no-forwarding.conf"
    reload_ssh(fleet, f"echo 'AllowTcpForwarding no' >{forbid}")
    try:
        run = evaluate(fleet, expect=1)
    finally:
        reload_ssh(fleet, f"rm {forbid}")
    (error,) = run.json["failed"][0]["errors"]
    assert error["message"].startswith(f"{fleet.host.name}: ") and '"AllowTcpForwarding local"' in error["hint"]


def test_a_service_that_is_down(fleet: Fleet) -> None:
    fleet.host.tell("systemctl stop rigup-chat")
    try:
        run = evaluate(fleet, expect=2)
    finally:
        fleet.host.tell("systemctl start rigup-chat")
    message = run.json["failed"][0]["errors"][0]["message"]
    assert message.startswith(f"{fleet.host.name}: ") and message.endswith(" port 8000")
