"""Roles of a fleet's own, on a host that is a folder here: when they run, what they are told, what their faults say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.operations import server

import rigup.api
from rigup.errors import InputError
from rigup.run.own_roles import own_roles
from rigup.run.runner import Run
from rigup.toolkit import toolkit_root

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "files" / "example_roles"
USERS = """
from pyinfra.operations import files
from rigup.api import RoleHost, after, before

@before
def folders(host: RoleHost) -> None:
    files.directory(name=f"folder of {host.group}", path=FOLDER)

@after
def mark(host: RoleHost) -> None:
    files.directory(name="mark", path=f"{FOLDER}/{host.os}")
"""


def write(root: Path, text: str, name: str = "users.py") -> None:
    (root / "roles").mkdir(exist_ok=True)
    (root / "roles" / name).write_text(text)


def toolkits(root: Path) -> None:
    """Stands for the toolkit's roles: fails unless those before them have made the folder."""
    server.shell(name="toolkit", commands=[f"[ -d {root}/made ] && [ ! -e {root}/made/debian-12 ]"])


def applied(run: Run) -> Any:
    with run:
        run.connect(take_lease=True)
        run.compare()
        shown = [(change.role, change.step) for change in run.results["box"].changes]
        run.execute()
    return shown, run.results["box"]


def test_they_run_before_and_after_the_toolkits(tmp_path: Path, local_run: Callable[..., Run]) -> None:
    write(tmp_path, f"FOLDER = {str(tmp_path / 'box/made')!r}\n{USERS}")
    write(tmp_path, "raise SystemExit", "_helpers.py")
    shown, result = applied(local_run({"box": toolkits}))
    assert shown == [("users", "folder of boxes"), ("", "toolkit"), ("users", "mark")]
    assert (result.state, result.errors) == ("changed", [])
    assert (tmp_path / "box/made/debian-12").is_dir()


def test_what_is_as_they_want_it_is_not_a_change(tmp_path: Path, local_run: Callable[..., Run]) -> None:
    write(tmp_path, f"FOLDER = {str(tmp_path / 'box/made')!r}\n{USERS}")
    (tmp_path / "box/made/debian-12").mkdir(parents=True)
    assert applied(local_run({"box": lambda _: None}))[0] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "roles/users.py: has no role"),
        ("def users(host): ...", "roles/users.py: has no role"),
        ("x = 1\nimport nothing_like_this", "roles/users.py:2: ModuleNotFoundError: No module named"),
        ("def (", "roles/users.py:1: "),
    ],
)
def test_a_file_that_is_not_a_role_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        list(own_roles(tmp_path))
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_a_role_that_raises_fails_its_host_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_run: Callable[..., Run]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "from rigup.api import before\n@before\ndef users(host):\n    host.data['uid']\n")
    run = local_run({"box": lambda _: None})
    with run:
        run.connect(take_lease=False)
        run.compare()
    (error,) = run.results["box"].errors
    assert (error.message, error.hint) == ("box: roles/users.py:4: KeyError: 'uid'", "correct roles/users.py")


def test_a_link_to_the_toolkits_roles_is_not_a_folder_of_own_ones(
    tmp_path: Path, local_run: Callable[..., Run]
) -> None:
    (tmp_path / "roles").symlink_to(toolkit_root() / "roles")
    assert applied(local_run({"box": lambda _: None}))[0] == []


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("gone")], ids=["file", "broken link"])
def test_what_stands_in_the_place_of_the_folder_is_not_passed_over(
    tmp_path: Path, local_run: Callable[..., Run], make: Callable[[Path], None]
) -> None:
    make(tmp_path / "roles")
    run = local_run({"box": lambda _: None})
    with run:
        run.connect(take_lease=False)
        with pytest.raises(InputError) as caught:
            run.compare()
    assert caught.value.message == f"{tmp_path}/roles: not a folder"


def test_the_interface_is_what_it_declares() -> None:
    assert sorted(rigup.api.__all__) == ["HostFailed", "Plan", "RoleHost", "after", "before"]
    fields = ["name", "group", "data", "plans", "os", "architecture"]
    assert list(rigup.api.RoleHost.__dataclass_fields__) == fields


def test_the_examples_are_roles(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "roles")
    assert [(path.stem, role.__name__) for path, role in own_roles(tmp_path)] == [
        ("data_disk", "data_disk"),
        ("lan_only", "lan_only"),
        ("people", "people"),
    ]
