"""A fleet in which no host serves anything, as after the last service was taken out: every verb has an answer."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from rigup.cli import tune
from rigup.cli.main import main
from rigup.commands.swap_groups import as_groups
from rigup.errors import InputError
from rigup.lock import load_lock
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.run import service_run
from tests.unit.lockfile.test_lock import CHECKED_IN, M21

SEE_THE_PLAN = "run rigup plan to see what each host serves"

Described = Callable[[str], Path]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Described:
    """Makes the fleet's folder; takes what its group's file says beside the rig."""

    def make(services: str = "services = {}") -> Path:
        for folder in ("inventories", "group_data"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "inventories/fleet.py").write_text('quad = ["a.lan", "b.lan"]\n')
        (tmp_path / "group_data/quad.py").write_text(f"rig = {{'gpus': '4x RTX 3090'}}\n{services}\n")
        return tmp_path

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return make


def test_there_is_nothing_to_pin_and_that_is_what_the_lock_was_made_for(
    fleet: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fleet("services = {}")
    assert main(["lock", "--check"]) == 1
    assert main(["lock"]) == 0
    assert main(["lock", "--check"]) == 0
    lock = load_lock(root / "rigup.lock")
    assert (list(lock.inputs), lock.checkpoints, lock.driver) == (["inventories/fleet.py"], (), None)
    assert capsys.readouterr().out.splitlines() == [
        "rigup.lock is stale:",
        "  rigup.lock does not exist",
        "rigup.lock: recorded the inputs; no pin changed",
        "rigup.lock pins everything",
    ]


def test_what_the_last_service_needed_stays_locked_until_it_is_pruned(
    fleet: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fleet("services = {}")
    (root / "rigup.lock").write_bytes((Path(__file__).parents[3] / "rigup.lock").read_bytes())
    assert main(["lock", "--limit", "a.lan"]) == 0
    assert main(["lock"]) == 0
    assert load_lock(root / "rigup.lock").checkpoints == CHECKED_IN.checkpoints
    assert main(["lock", "--prune"]) == 0
    assert load_lock(root / "rigup.lock").checkpoints == ()
    assert main(["lock", "--check"]) == 0


def test_nothing_is_vendored(fleet: Described, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet("services = {}")
    assert main(["lock", "--vendor", "shelf", "--with-weights", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["vendored"]["files"], said["refused"]) == (0, [])
    assert json.loads((tmp_path / "shelf/manifest.json").read_text())["files"] == {}


def test_a_repository_that_no_service_uses_is_not_upgraded(
    fleet: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    root = fleet("services = {}")
    before = (Path(__file__).parents[3] / "rigup.lock").read_bytes()
    (root / "rigup.lock").write_bytes(before)
    repo = CHECKED_IN.checkpoints[0].repo
    assert main(["lock", "--upgrade", repo]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"rigup: --upgrade {repo}: ") and hint.endswith("rigup plan")
    assert (root / "rigup.lock").read_bytes() == before


@pytest.mark.parametrize(
    ("services", "message", "hint"),
    [
        (
            "services = {}",
            "group_data/quad.py: services: a.lan has no service whose kernel could be tuned",
            SEE_THE_PLAN,
        ),
        ("", "group_data/quad.py: services: missing", 'write services = {"chat": {"model": "MiniMax-M2.5"}}'),
    ],
)
@pytest.mark.parametrize("service", [None, "chat"])
def test_there_is_nothing_to_tune(
    fleet: Described, services: str, message: str, hint: str, service: str | None
) -> None:
    fleet(services)
    with pytest.raises(InputError) as caught:
        tune._plan(Namespace(inventory=None, limit="a.lan,b.lan", group="quad", service=service))
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize("service", [None, "chat"])
def test_there_is_nothing_to_measure(fleet: Described, service: str | None) -> None:
    fleet("services = {}")
    with pytest.raises(InputError) as caught:
        service_run.check_service({"a.lan": (), "b.lan": ()}, service)
    assert caught.value.message == "none of these hosts serves anything"
    assert caught.value.hint == SEE_THE_PLAN


def test_a_service_of_another_name_is_told_with_those_there_are(fleet: Described) -> None:
    root = fleet(f"services = {{'chat': {{'checkpoint': {M21!r}, 'quant': 'UD-IQ2_M'}}}}")
    plans = {"a.lan": plan_project(load_project(str(root / "inventories/fleet.py"), "a.lan"))}
    service_run.check_service(plans, None)
    service_run.check_service(plans, "chat")
    with pytest.raises(InputError) as caught:
        service_run.check_service(plans, "chta")
    assert (caught.value.message, caught.value.hint) == ('--service: no service "chta" here', "choose from: chat")


def test_each_service_that_takes_turns_can_be_asked(fleet: Described) -> None:
    turns = {"checkpoint": M21, "quant": "UD-IQ2_M", "swap": True}
    root = fleet(f"services = { {'chat': turns, 'coder': {**turns, 'served_name': 'c'}}!r}")
    plans = {"a.lan": as_groups(plan_project(load_project(str(root / "inventories/fleet.py"), "a.lan")))}
    service_run.check_service(plans, "coder")
    with pytest.raises(InputError) as caught:
        service_run.check_service(plans, "chta")
    assert caught.value.hint == "choose from: chat, coder"
