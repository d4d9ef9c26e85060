"""HAProxy's answers on its admin socket: what is read from them, and what a broken or hostile one leads to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.gateway import admin
from rigup.operations.gateway.admin import is_current, left_out, map_digest, outdated_maps, read_answers, running_digest

INFO = "Name: HAProxy\nVersion: 2.6.12\ndescription: 0123456789abcdef\n"
MAPS = {"/m/clients.map": 'ab {"name": "a"}\ncd {"name": "b"}\n', "/m/models.map": "a/x yes\n"}
STATE = (
    "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state\n"
    "3 model-m 1 a.s ::1 2 {}\n3 model-m 2 b.s ::1 2 0\n"
)
HERE = STATE.format(0)
CLIENTS, MODELS = map(map_digest, MAPS.values())


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[1]", '["a", null]', "[" * 100])
def test_what_is_not_a_list_of_texts_is_not_an_answer(text: str) -> None:
    assert read_answers(text) == ()


def test_the_order_of_entries_does_not_count() -> None:
    text = MAPS["/m/clients.map"]
    assert map_digest("\n".join(reversed(text.splitlines()))) == map_digest(text) != map_digest("")


@pytest.mark.parametrize(
    ("answers", "digest", "outdated"),
    [
        ((INFO, HERE, CLIENTS, MODELS), "0123456789abcdef", ()),
        ((INFO, HERE, CLIENTS, ""), "0123456789abcdef", ("/m/models.map",)),
        ((INFO, HERE, "Unknown map identifier.", MODELS), "0123456789abcdef", ("/m/clients.map",)),
        ((INFO,), "0123456789abcdef", tuple(MAPS)),
        ((), "", tuple(MAPS)),
    ],
)
def test_what_the_running_process_lacks(answers: tuple[str, ...], digest: str, outdated: tuple[str, ...]) -> None:
    assert (running_digest(answers), outdated_maps(answers, MAPS)) == (digest, outdated)
    assert is_current(answers, "0123456789abcdef", MAPS) == (bool(digest) and not outdated)


@pytest.mark.parametrize(
    ("state", "names"), [(0, ()), (8, ("model-m/a.s",)), (1, ("model-m/a.s",)), (32, ()), ("x", ())]
)
def test_a_backend_that_was_taken_out(state: object, names: tuple[str, ...]) -> None:
    answers = (INFO, STATE.format(state), CLIENTS, MODELS)
    assert left_out(answers) == names
    assert is_current(answers, "0123456789abcdef", MAPS) == (not names)
    assert is_current(answers, "0123456789abcdef", MAPS, ["model-m/a.s"])


def test_a_map_that_is_not_whole_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def tell(host: object, command: str) -> tuple[str, ...]:
        told.append(command)
        return ({"prepare": "New version created: 7", "add": "Out of memory error."}.get(command.split()[0], ""),)

    monkeypatch.setattr(admin, "tell", tell)
    host: Any = SimpleNamespace(name="gw")
    with pytest.raises(HostFailed, match=r"gw: the gateway cannot replace /m: Out of memory error\."):
        admin.replace_map(host, "/m", "a b\n")
    assert told == ["prepare map /m", "add map @7 /m <<\na b"]
