"""The contract with the private parts of pyinfra and paramiko that rigup uses.

A test that fails after an update says what moved; `rigup.connection.pyinfra_internals` is the module to adapt.
"""

from __future__ import annotations

import inspect
import re
import socket
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import paramiko.config
import pyinfra.api.arguments
import pyinfra.api.facts
import pyinfra.api.host
import pyinfra.api.inventory
import pyinfra.api.operations
import pyinfra.api.state
import pyinfra.connectors.ssh
import pyinfra.connectors.sshuserclient.client
import pyinfra.connectors.util
import pyinfra.context
import pytest

from rigup.connection import pyinfra_internals
from rigup.connection.connector import RigupSSHConnector

SOURCE = Path(__file__).parents[3] / "src/rigup"

OPERATION = import_module("pyinfra.api.operation")  # pyinfra.api has a function of that name
CLIENT, UTIL = pyinfra.connectors.sshuserclient.client, pyinfra.connectors.util
NAMES: tuple[tuple[Any, str], ...] = (
    (pyinfra.api.arguments, "get_type_hints"),
    (pyinfra.api.inventory, "get_all_connectors"),
    (pyinfra.api.inventory, "get_execution_connectors"),
    (pyinfra.api.facts, "get_fact"),
    (pyinfra.api.operations, "run_host_op"),
    (pyinfra.api.state.State, "activate_host"),
    (pyinfra.api.state.State, "get_op_meta"),
    (pyinfra.api.state.State, "get_op_data_for_host"),
    (pyinfra.api.state.State, "set_stage"),
    (OPERATION.OperationMeta, "will_change"),
    (OPERATION.OperationMeta, "did_change"),
    (OPERATION.OperationMeta, "is_complete"),
    (OPERATION.OperationMeta, "stdout_lines"),
    (OPERATION.OperationMeta, "stderr_lines"),
    (pyinfra.api.host.Host, "get_deploy_data"),
    (pyinfra.context, "ctx_config"),
    (pyinfra.context, "ctx_host"),
    (pyinfra.context, "ctx_state"),
    (pyinfra.connectors.ssh.SSHConnector, "make_paramiko_kwargs"),
    (UTIL, "make_unix_command"),
    (UTIL, "make_unix_command_for_host"),
    (CLIENT, "get_missing_host_key_policy"),
    (CLIENT, "get_ssh_config"),
    (CLIENT, "AcceptNewPolicy"),
    (CLIENT, "StrictPolicy"),
    (CLIENT, "WarningPolicy"),
    (CLIENT.SSHClient, "derive_shorthand"),
)
ATTRIBUTES = {
    "host": (
        "op_hash_order",
        "loop_position",
        "current_op_hash",
        "executing_op_hash",
        "connector_cls",
        "connector_data",
    ),
    "state": ("ops", "pool", "failed_hosts", "active_hosts", "is_executing", "current_stage", "cwd"),
}
PARAMETERS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (UTIL.make_unix_command, ("_env", "_chdir", "_shell_executable", "_sudo", "_sudo_user")),
    (pyinfra.api.facts.get_fact, ("state", "host", "cls", "args", "kwargs")),
    (pyinfra.api.host.Host.connect, ("show_errors", "raise_exceptions")),
)
CALLED_BY_NAME: tuple[tuple[ModuleType | type, str], ...] = (
    (pyinfra.api.arguments, "get_type_hints("),
    (pyinfra.api.inventory, "get_all_connectors("),
    (pyinfra.api.inventory, "get_execution_connectors()"),
    (CLIENT.SSHClient, "get_missing_host_key_policy("),
    (CLIENT.SSHClient, ".derive_shorthand("),
    (CLIENT.SSHClient, "self._ssh_config = config"),
    (CLIENT.SSHClient, "self.parse_config("),
    (CLIENT.SSHClient, "self._host_keys = get_host_keys("),
    (CLIENT.SSHClient, 'cfg["sock"] = ProxyCommand('),
    (CLIENT.SSHClient, "self._host_keys_filename = "),
    (OPERATION, "loop_position"),
    (paramiko.config, "passed = invoke.run("),
)


def moved(what: str) -> str:
    return f"pyinfra {version('pyinfra')} has no {what} any more: rigup.connection.pyinfra_internals has to follow it"


@pytest.fixture
def state(tmp_path: Path) -> Any:
    return pyinfra_internals.new_state([("one", {"x": 1}), ("two", {})], RigupSSHConnector, 7, 2, tmp_path)


@pytest.mark.parametrize(("owner", "name"), NAMES, ids=lambda value: str(getattr(value, "__name__", value)))
def test_names(owner: Any, name: str) -> None:
    assert hasattr(owner, name), moved(f"{owner.__name__}.{name}")


def test_attributes_of_a_host_and_of_a_state(state: Any) -> None:
    one = state.inventory.get_host("one")
    for owner, value in (("host", one), ("state", state)):
        for name in ATTRIBUTES[owner]:
            assert hasattr(value, name), moved(f"attribute {name!r} of a {owner}")


@pytest.mark.parametrize(("function", "wanted"), PARAMETERS, ids=lambda value: getattr(value, "__name__", ""))
def test_parameters(function: Callable[..., Any], wanted: tuple[str, ...]) -> None:
    there = inspect.signature(function).parameters
    for name in wanted:
        assert name in there, moved(f"parameter {name!r} of {function.__name__}")


@pytest.mark.parametrize(("owner", "text"), CALLED_BY_NAME, ids=lambda value: str(getattr(value, "__name__", value)))
def test_what_is_replaced_is_what_pyinfra_calls(owner: Any, text: str) -> None:
    assert text in inspect.getsource(owner), moved(f"{text!r} in {owner.__name__}")


def test_each_host_has_a_position_a_connector_and_data_of_its_own(state: Any) -> None:
    one, two = state.inventory
    assert (one.loop_position, two.loop_position) == ([0], [1]), moved("position by which operations are told apart")
    assert one.connector_cls is RigupSSHConnector
    assert (one.data.x, one.data.get("_sudo")) == (1, None), moved("layering of a host's data")
    one.data._sudo = True
    assert one.data._sudo is True, moved("overriding of a host's data")
    assert (state.config.CONNECT_TIMEOUT, state.config.PARALLEL) == (7, 2)


def test_stages_go_forward_only(state: Any) -> None:
    for stage in ("connect", "compare", "execute"):
        pyinfra_internals.set_stage(state, stage)
    assert state.is_executing
    pyinfra_internals.set_stage(state, "compare")
    assert not state.is_executing


def test_a_command_line_and_one_behind_sudo(state: Any) -> None:
    (one, _), command = state.inventory, pyinfra.api.StringCommand("echo", "it")
    plain = pyinfra_internals.command_line(one, command, {"_sudo": True, "_env": {"A": "b"}})
    assert plain == "sudo -H -n sh -c 'export A=b && echo it'"
    asked = pyinfra_internals.command_line_behind_sudo("who?", "ada", command, {"_env": {"A": "b"}})
    assert asked == "sudo -k -S -p 'who?' -H -u ada sh -c 'export A=b && echo it'"


def test_a_connection_sends_small_packets_at_once_from_the_first_on() -> None:
    assert "transport_factory" in inspect.signature(paramiko.SSHClient.connect).parameters, (
        f"paramiko {version('paramiko')} takes no transport: prompt_transport has to get in elsewhere"
    )
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        transport = pyinfra_internals.prompt_transport(client)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        far, _ = server.accept()
        with far:
            far.sendall(b"SSH")
            assert transport.sock.recv(3) == b"SSH"
            transport.sock.sendall(b"2.0")
            assert far.recv(3) == b"2.0"


def test_a_channel_through_a_jump_host_is_taken_as_it_is() -> None:
    channel = paramiko.Channel(1)
    assert pyinfra_internals.prompt_transport(channel).sock is channel


def test_a_client_keeps_host_keys_where_they_are_looked_for() -> None:
    client = CLIENT.SSHClient()
    for name in ("_host_keys", "_host_keys_filename"):
        assert hasattr(client, name), f"paramiko {version('paramiko')} has no {name}: host keys have to follow it"


def test_nothing_else_in_rigup_knows_these_insides() -> None:
    insides = re.compile(
        r"_ssh_config\b.*client|op_hash_order|loop_position|executing_op_hash|current_op_hash|\bctx_(host|state|config)\b"
        r"|_Packetizer__|make_unix_command|pyinfra\.(context|connectors)|api\.(facts|operations|state|host)\b|\._host_keys"
    )
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "pyinfra_internals.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if insides.search(line)
    ]
    assert found == []
