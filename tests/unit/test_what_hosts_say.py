"""Whoever reads what a host says gets a typed value, or one of the errors that fail that host alone.

Each reader is given every kind, size and form: facts are found by their class, other readers are listed here.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import FactBase
from pyinfra.connectors.util import CommandOutput, OutputLine

import rigup
from rigup.cli.log import parse as parse_log
from rigup.connection import fact_batch, handshake
from rigup.connection.lease import Holder
from rigup.errors import RigupError
from rigup.facts import apply_records, network
from rigup.facts.bounds import Unreadable
from rigup.facts.manifest import read_manifest
from rigup.facts.probe import parse
from rigup.operations import whole_removal
from rigup.operations.apt import commands, packages, room
from rigup.operations.builds import wheels
from rigup.operations.driver import loading
from rigup.operations.gateway import admin
from rigup.operations.multinode import peers
from rigup.operations.primitives import jobs, remote
from rigup.operations.service import reply
from rigup.operations.service.endpoints import endpoint_of
from rigup.operations.service.history import parse_kept
from rigup.operations.service.releases import stage
from rigup.operations.weights import checkpoint, host_files, sharing, upload
from rigup.run.drift_probe import read_check
from rigup.run.prune import read_leftovers
from rigup.run.services.journal import read_entry
from rigup.tuning import run as tuning
from tests.hostile import HOSTILE, bounded

VALUES = (None, True, -1, 10**30, 0.5, "x", "", [], [[]], ["x"], {}, {"x": {}}, {"x": None})
KEYS = ("command", "gpus", "missing", "files", "system", "gpu", "state", "text", "model", "host", "MESSAGE")
JSON = [json.dumps(value) for value in VALUES] + [json.dumps({key: value}) for key in KEYS for value in VALUES]
WORDS = (
    "",
    " ",
    "x",
    "-",
    "-1",
    "0",
    "٣",
    "9" * 5000,
    "1e999",
    "NaN",
    "inf",
    "yes",
    "none",
    "=",
    "|",
    "\t",
    ":",
    "\x00",
)
ALL = (
    *WORDS,
    *JSON,
    *(f"{first} {second}" for first in WORDS for second in WORDS),
    *(f"{word}\n\n {word} \n{word}" for word in WORDS),
    *(sign.join((first, second)) for sign in "=|\t:" for first in WORDS[2:9] for second in WORDS[2:9]),
    *('{"x": Infinity}', "[" * 100_000, "x" * 1_000_000, "x y\n" * 20_000, "1 2 3 4 5 6\n" * 200, "\n" * 20_000),
    *(HOSTILE, "half \udfff", "{", '"', "'" * 1000, "[1, 2", "{'gpu': 0, 'name': 1}"),
)
MAY_RAISE = (RigupError, Unreadable, *remote.CONNECTION_ERRORS)


class TalkingHost:
    """Answers every command with the same text."""

    def __init__(self, said: str) -> None:
        self.name, self.said = "gpu1", said
        self.data = SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.connector_data: dict[str, Any] = {}

    def run_shell_command(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        """As pyinfra's."""
        return True, SimpleNamespace(stdout=self.said, stderr="")


TEXTS: dict[str, Callable[[str], Any]] = {
    "manifest": lambda text: read_manifest(text, "release.json"),
    "command of a release": lambda text: of_command(["serve", "--port", text]),
    "address of a release": lambda text: of_command(["serve", "--host", text, "--alias", text]),
    "probe": lambda text: parse(text.split("\n")),
    "network": lambda text: network.parse(text.split("\n")),
    "releases": lambda text: parse_kept(f"release chat 1 1 current answered - - {text}\nrelease {text}\n{text}"),
    "records": apply_records.parse,
    "log": parse_log,
    "lease": Holder.parse,
    "handshake": lambda text: shake_hands(f"{handshake._LEASE} {text}", f"{handshake._WHO} {text}"),
    "cached facts": lambda text: shake_hands(
        fact_batch.MARK, f"{fact_batch.MARK} {text}", text, f"{fact_batch.MARK} = 1"
    ),
    "journal": lambda text: read_entry("gpu1", text),
    "leftovers": read_leftovers,
    "check of weights": lambda text: read_check(text, "gpu1: x"),
    "why": checkpoint._why,
    "reply": reply.read_reply,
    "gateway": admin.read_answers,
    "lock of apt": lambda text: commands._too_long("x", commands.lock_holder(text) or "process 1 (x)"),
    "gateway's digest": lambda text: admin.is_current((text, text, text), "x", {"a": "b"}),
}
HOSTS: dict[str, Callable[[Any], Any]] = {
    "free bytes": lambda host: remote.free_bytes(host, "/"),
    "hashes of wheels": lambda host: wheels._missing(host, {"a": "b"}),
    "packages": lambda host: packages._installed(host, ["a"]),
    "versions": lambda host: commands.exact("gpu1", {"a": "1"}, commands.versions(host, ["a"])),
    "removals": lambda host: commands.removed_with(host, ["a"]),
    "state of a job": lambda host: jobs._state(host, SimpleNamespace(unit="rigup-x")),
    "last words": lambda host: jobs._last_words(host, SimpleNamespace(unit="rigup-x")),
    "own addresses": sharing.own_addresses,
    "sharing": lambda host: sharing.sharing_state(host, "x"),
    "sizes of weights": lambda host: upload._sizes(host, host.said, [{"path": "a"}]),
    "other downloads": lambda host: checkpoint._stop_others(host, "rigup-w", SimpleNamespace(unit="x", step="x")),
    "names of files": lambda host: host_files.file_names(host, "/x"),
    "sizes of files": lambda host: host_files.file_sizes(host, ["/x"]),
    "part of a file": lambda host: host_files.read_part(host, "/x", 0, 1),
    "hash of a file": lambda host: host_files.sha256(host, "/x", 1),
    "who uses GPUs": lambda host: loading._reload(host, SimpleNamespace(nvidia=SimpleNamespace(nouveau=False)), "x"),
    "releases there": lambda host: stage(host, SimpleNamespace(service="chat"), "1"),
    "state of a peer": lambda host: peers._state(host, "x"),
    "connections": lambda host: peers.without_connection(host, {"a": "1.1.1.1"}, 1),
    "tunings": lambda host: tuning._goes_on(host, "x"),
    "what is installed": lambda host: whole_removal.installed_on(host, ()),
    "size of a folder": lambda host: whole_removal.installed_on(
        TalkingHost(f"{host.said}\t{whole_removal.FOLDERS[0]}"), ()
    ),
    "room": lambda host: room.require_room(host, "x", ()),
    "size of packages": lambda host: room.require_room(TalkingHost(f"Size: {host.said}\nFree: {host.said}"), "x", ()),
}


def shake_hands(*said: str) -> None:
    lines = [OutputLine("stdout", line) for text in said for line in text.split("\n")]
    handshake._read(CommandOutput(lines))


def of_command(command: list[str]) -> None:
    endpoint = endpoint_of("gpu1", "chat", read_manifest(json.dumps({"command": command}), "release.json"))
    assert endpoint is None or (0 < endpoint.port < 65_536 and len(endpoint.url) < 100)


def fact_classes() -> Iterator[type[Any]]:
    for module in pkgutil.walk_packages(rigup.__path__, "rigup."):
        if module.name.startswith(("rigup.facts", "rigup.operations", "rigup.run", "rigup.roles")):
            for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(found, FactBase) and found.__module__ == module.name:
                    yield found


FACTS = list(fact_classes())


def read(reader: Callable[[Any], Any], said: Any) -> None:
    try:
        reader(said)
    except MAY_RAISE:
        return


@pytest.mark.parametrize("name", TEXTS)
def test_a_text(name: str) -> None:
    with bounded(60.0):
        for said in ALL:
            read(TEXTS[name], said)


@pytest.mark.parametrize("name", HOSTS)
def test_the_output_of_a_command(name: str) -> None:
    with bounded(60.0):
        for said in ALL:
            read(HOSTS[name], TalkingHost(said))


@pytest.mark.parametrize("fact", FACTS, ids=[fact.__name__ for fact in FACTS])
def test_a_fact(fact: type[Any]) -> None:
    with bounded(60.0):
        for said in ALL:
            read(lambda text: fact().process(text.split("\n")), said)
