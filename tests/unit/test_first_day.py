"""The walk of a new user's tasks: what a failed one stops, what the table says. The tasks themselves need a lab."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from benchmarks.first_day import __main__ as first_day
from benchmarks.first_day.new_user import GROUP_DATA, NewUser
from benchmarks.first_day.serving import ALIGNMENT, TEMPLATE, with_template
from benchmarks.first_day.task import FAILED, NOT_TRIED, OK, Outcome, Task, slowest, walked
from rigup.project.rig_from_probe import group_data


def fails(user: list[str]) -> str:
    raise AssertionError("no answer\nand the log of it")


def done(user: list[str]) -> str:
    user.append("done")
    return "as it should be"


def test_a_failed_task_stops_only_what_needs_it() -> None:
    tasks = (Task("up", fails), Task("chat", done, ("up",)), Task("key", done, ("chat",)), Task("help", done))
    user: list[str] = []
    outcomes = list(walked(tasks, user))
    assert [(outcome.task, outcome.result) for outcome in outcomes] == [
        ("up", FAILED),
        ("chat", NOT_TRIED),
        ("key", NOT_TRIED),
        ("help", OK),
    ]
    assert [outcome.note for outcome in outcomes[:3]] == [
        "AssertionError: no answer\nand the log of it",
        "needs: up",
        "needs: chat",
    ]
    assert user == ["done"]


def test_every_task_needs_tasks_before_it() -> None:
    names = [task.name for task in first_day.TASKS]
    assert len(names) == len(set(names)) >= 25
    for number, task in enumerate(first_day.TASKS):
        assert set(task.needs) <= set(names[:number]), task.name


def test_the_table_names_the_slowest_task_and_says_in_full_what_failed() -> None:
    outcomes = [Outcome("up", OK, 61.0, "from the cache"), Outcome("chat", FAILED, 2.0, "no answer\nand the log of it")]
    text = first_day.table(outcomes)
    assert "| up | 1 min 01 s | ok | from the cache |\n| chat | 2.00 s | failed | no answer |\n" in text
    assert "1 of 2 tasks in 1 min 03 s; the slowest is up: 1 min 01 s." in text
    assert text.endswith("chat: no answer\nand the log of it")
    found = json.loads(first_day.document(outcomes))
    assert (found["slowest"], found["tasks"][1]["result"]) == ("up", FAILED)
    assert slowest(outcomes).task == "up"


def test_services_are_edited_where_up_has_written_them(tmp_path: Path) -> None:
    user = NewUser(tmp_path, tmp_path / "rigup.whl")
    path = user.fleet / GROUP_DATA
    path.parent.mkdir()
    path.write_text(group_data("gpu1.lan", {"gpus": []}, {"model": "A"}, {"hub": "http://hub:8090"}))
    before = path.read_text()
    assert user.services == {"chat": {"model": "A"}}
    user.serve({**user.services, "second": {"model": "A", "port": 8001}})
    assert user.services["second"]["port"] == 8001
    user.serve({"chat": {"model": "A"}})
    assert path.read_text().replace("'", '"') == before


def test_another_chat_template_moves_nothing_out_of_its_alignment() -> None:
    old = b"{% if a %}{% endif %}"
    before, after = b"GGUF tokenizer.chat_template" + struct.pack("<IQ", 8, len(old)), b"the rest" * 9
    made = with_template(before + old + after, TEMPLATE)
    assert made.startswith(before[:-8]) and made.endswith(after)
    text = made[len(before) : -len(after)]
    assert struct.unpack_from("<Q", made, len(before) - 8) == (len(text),)
    assert (len(text) - len(old)) % ALIGNMENT == 0
    assert b" ".join(text.split()) == b" ".join(TEMPLATE.encode().replace(b"{% endif%}", b"{% endif %}").split())
