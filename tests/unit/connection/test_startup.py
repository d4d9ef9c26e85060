"""What happens before anything else is imported. Each test has a process of its own, since patching is for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def said_by(program: str) -> str:
    """What a program prints that has begun as a verb that talks to hosts does."""
    begin = "from rigup.connection.startup import between_imports, patch_for_many_hosts\npatch_for_many_hosts()\n"
    done = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_others_have_their_turn_between_imports_and_not_after_them() -> None:
    said = said_by(
        "import gevent\n"
        "turns = []\n"
        "def count():\n"
        "    while True:\n"
        "        turns.append(1)\n"
        "        gevent.sleep(0)\n"
        "gevent.spawn(count)\n"
        "with between_imports():\n"
        "    import wave, colorsys, chunk\n"
        "during = len(turns)\n"
        "import sndhdr\n"
        "print(during >= 3, len(turns) == during)\n"
    )
    assert said == "True True\n"


def test_a_module_that_two_import_at_once_is_imported_once_and_whole() -> None:
    said = said_by(
        "import gevent\n"
        "def use():\n"
        "    from xml.dom import minidom\n"
        "    return minidom.parseString('<a/>').documentElement.tagName\n"
        "with between_imports():\n"
        "    users = [gevent.spawn(use) for _ in range(5)]\n"
        "    gevent.joinall(users, raise_error=True, timeout=60)\n"
        "print(*(user.value for user in users))\n"
    )
    assert said == "a a a a a\n"


def test_match_exec_of_the_users_ssh_config_is_run(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "test -e /dev/null"\n  User ada\nMatch exec "echo to-nobody; exit 3"\n  Port 2222\n')
    said = said_by(
        "from rigup.connection.ssh_config import ssh_config\n"
        f"found = ssh_config({str(config)!r}, 'gpu1.lan')\n"
        "print(found['user'], found.get('port'))\n"
    )
    assert said == "ada None\n"


def test_gevent_still_looks_for_plugins_where_rigup_prevents_it() -> None:
    said = said_by(
        "import inspect\n"
        "from gevent import events\n"
        "from gevent.monkey import _util\n"
        "print(events.notify_and_call_entry_points is events.notify,"
        " 'notify_and_call_entry_points' in inspect.getsource(_util._notify_patch))\n"
    )
    assert said == "True True\n"
