"""The private parts of pyinfra and paramiko that rigup uses; neither promises to keep them.

The rest of rigup calls the typed functions here. tests/unit/connection/test_pyinfra_internals.py checks each of them
against the installed release.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko.config
from gevent.pool import Pool
from pyinfra.api import Config, Inventory, State, arguments, inventory
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.facts import get_fact
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.api.util import get_file_io
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import client as ssh_client
from pyinfra.connectors.sshuserclient.client import AcceptNewPolicy, StrictPolicy, WarningPolicy
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command, make_unix_command_for_host
from pyinfra.context import ctx_config, ctx_host, ctx_state

__all__ = [
    "AcceptNewPolicy",
    "CommandOutput",
    "ConnectError",
    "OutputLine",
    "SSHConnector",
    "State",
    "StrictPolicy",
    "WarningPolicy",
    "get_file_io",
]

STAGES = {"connect": StateStage.Connect, "compare": StateStage.Prepare, "execute": StateStage.Execute}


# the state of a run


def new_state(
    hosts: Iterable[tuple[str, dict[str, Any]]],
    connector: type[SSHConnector],
    timeout: int,
    parallel: int,
    folder: Path,
) -> State:
    """pyinfra's state of one run over these hosts, each reached by `connector` within `timeout` seconds."""
    arguments.get_type_hints = cache(arguments.get_type_hints)  # pyinfra works them out again for each operation
    # pyinfra searches all installed packages for connectors, and imports each that it finds
    inventory.get_all_connectors = inventory.get_execution_connectors = lambda: {"ssh": connector}
    found = Inventory((list(hosts), {}))
    for index, host in enumerate(found):
        # pyinfra's API tells operations apart by position alone; this makes the host part of it
        host.loop_position = [index]
        # where pyinfra looks for some thirty arguments of each operation: all there is, without its empty layers
        own = found.get_host_data(host.name)
        host.data.__dict__["datas"] = (host.data.override_datas, own, host.get_deploy_data)
    state = State(found, Config(CONNECT_TIMEOUT=timeout, PARALLEL=parallel))
    state.cwd = str(folder)
    return state


def set_stage(state: State, stage: str) -> None:
    """Sets the run to one of STAGES; pyinfra's own method cannot go back for a second comparison."""
    if STAGES[stage] > state.current_stage:
        state.set_stage(STAGES[stage])
    state.is_executing = stage == "execute"


def widen_pool(state: State, size: int) -> None:
    """So many hosts can be at work at once."""
    if size > state.pool.size:
        state.pool = Pool(size)


@contextmanager
def at_work(state: State) -> Iterator[None]:
    """Within it pyinfra's operations belong to this run."""
    ctx_state.set(state)
    try:
        yield
    finally:
        ctx_state.reset()


@contextmanager
def at_work_on(state: State, host: Any) -> Iterator[None]:
    """Within it, in this greenlet, pyinfra's `host` and `config` are those of this host."""
    try:
        with ctx_config.use(state.config.copy()), ctx_host.use(host):
            yield
    finally:
        ctx_host.reset()


def reach(state: State, host: Any) -> None:
    """Connects. Raises ConnectError, and some key errors of paramiko as they are."""
    host.connect(show_errors=False, raise_exceptions=True)
    state.activate_host(host)


# the operations of a host


def operations(host: Any) -> list[str]:
    """The identities of a host's operations, in order."""
    return list(host.op_hash_order)


def forget_operations(state: State, host: Any) -> None:
    """The host begins again with none."""
    state.ops[host] = {}
    host.op_hash_order = []
    host.loop_position = [*host.loop_position, 0]  # pyinfra keeps what it knows of operations by position


def operation_name(state: State, operation: str) -> str:
    """As its author called it."""
    return str(next(iter(state.get_op_meta(operation).names)))


def will_change(state: State, host: Any, operation: str) -> bool:
    """Whether the comparison found something for it to do."""
    return bool(_meta(state, host, operation).will_change)


def did_change(state: State, host: Any, operation: str) -> bool:
    """Whether it has done something."""
    return bool(_meta(state, host, operation).did_change())


def last_words(state: State, host: Any, operation: str) -> str:
    """The last line of what it printed, "" where it printed nothing."""
    meta = _meta(state, host, operation)
    lines = [line for line in (*meta.stderr_lines, *meta.stdout_lines) if line.strip()] if meta.is_complete() else []
    return lines[-1].strip() if lines else ""


def carry_out(state: State, host: Any, operation: str) -> bool:
    """Runs one operation. Returns whether it went well."""
    return bool(run_host_op(state, host, operation))


def commands(state: State, host: Any, operation: str) -> list[Any]:
    """What an operation would do now. Between operations only: it reads facts as one of them."""
    return list(state.get_op_data_for_host(host, operation).command_generator())


def being_compared(host: Any) -> str:
    """The operation whose facts are being read, "" outside of one."""
    return host.current_op_hash or ""


def being_carried_out(host: Any) -> str:
    """The operation that is running, "" outside of one."""
    return host.executing_op_hash or ""


def _meta(state: State, host: Any, operation: str) -> Any:
    return state.get_op_data_for_host(host, operation).operation_meta


# facts


def replace_get_fact(host: Any, function: Callable[..., Any]) -> None:
    """Operations read facts of this host through `function`, called as the host's own is."""
    host.get_fact = function


def read_fact(host: Any, fact: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool]:
    """A fact as pyinfra reads it. Returns its value, and whether it could be read: else pyinfra drops the host."""
    state, value = host.state, None
    try:
        value = get_fact(state, host, fact, args=args, kwargs=kwargs)
    except PyinfraError:
        if host not in state.failed_hosts:
            raise
    if host not in state.failed_hosts:
        return value, True
    state.failed_hosts.discard(host)
    state.active_hosts.add(host)
    return value, False


# commands and connections


def command_line(host: Any, command: StringCommand, arguments: dict[str, Any]) -> str:
    """The line for the login shell that runs a command as pyinfra's arguments say, without any password."""
    return str(make_unix_command_for_host(host.state, host, command, **arguments).get_raw_value())


def command_line_behind_sudo(prompt: str, user: str | None, command: StringCommand, environment: dict[str, Any]) -> str:
    """As `command_line`, with a sudo that asks for a password with this prompt on standard error."""
    words: list[Any] = ["sudo", "-k", "-S", "-p", QuoteString(prompt), "-H"]
    if user:
        words += ["-u", QuoteString(user)]
    return str(StringCommand(*words, make_unix_command(command, **environment)).get_raw_value())


def port_of(client: Any) -> int:
    """The port that a client was told to connect to."""
    return int(getattr(client, "_ssh_config", {}).get("port", 22))


def prompt_transport(sock: Any, **arguments: Any) -> paramiko.Transport:
    """A transport whose small packets are neither held back here nor, where the kernel can, by its peer.

    sock: a socket, or a jump host's channel, which is left as it is.
    """
    if isinstance(sock, socket.socket):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock = _QuickAckSocket(sock)
    return paramiko.Transport(sock, **arguments)


class _QuickAckSocket:
    """A socket that acknowledges what it receives at once, where the kernel can.

    sshd sends small packets in a row, each held back until the one before is acknowledged: 40 ms a piece.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        """As the socket's."""
        data = self._sock.recv(size)
        if hasattr(socket, "TCP_QUICKACK"):
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


def replace_proxy_command(kind: type[paramiko.ProxyCommand]) -> None:
    """Clients start the ProxyCommand of ssh_config as one of this kind."""
    ssh_client.ProxyCommand = kind


def socket_of(client: Any) -> Any:
    """What a client was told to connect through, None for a connection of its own."""
    return getattr(client, "_ssh_config", {}).get("sock")


# ssh_config and host keys


class _MatchExec:
    """Runs the programs of `Match exec` for paramiko; invoke, its own choice, fails beside gevent."""

    @staticmethod
    def run(program: str, **_: object) -> SimpleNamespace:
        """Runs a program of the user's own ssh_config, as ssh does; `ok` says whether it succeeded."""
        done = subprocess.run(["/bin/sh", "-c", program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return SimpleNamespace(ok=done.returncode == 0)


def looked_up(file: str | None, hostname: str) -> Mapping[str, str]:
    """What ssh_config says about a host, keys in lower case. Raises OSError, ValueError or SSHException."""
    paramiko.config.invoke = _MatchExec  # type: ignore[attr-defined]
    config = ssh_client.get_ssh_config(file)
    return dict(config.lookup(hostname)) if config else {}


def replace_host_key_policies(choose: Callable[[str | None], Any]) -> None:
    """Clients take what `choose` returns for a value of StrictHostKeyChecking; None where nothing gives one."""
    ssh_client.get_missing_host_key_policy = choose


_PARSE_CONFIG, _GET_HOST_KEYS = ssh_client.SSHClient.parse_config, ssh_client.get_host_keys
_alias: ContextVar[str] = ContextVar("rigup_host_key_alias", default="")


def replace_known_hosts(choose: Callable[[Any, tuple[str, ...], str], Any]) -> None:
    """Clients look for host keys in what `choose` returns for paramiko's own, their files and HostKeyAlias."""

    def parse_config(client: Any, hostname: str, *rest: Any, **more: Any) -> Any:
        found = _PARSE_CONFIG(client, hostname, *rest, **more)  # which may connect to jump hosts first
        _alias.set(looked_up(more.get("ssh_config_file"), hostname).get("hostkeyalias", ""))
        return found

    ssh_client.SSHClient.parse_config = parse_config
    ssh_client.get_host_keys = lambda files: choose(_GET_HOST_KEYS(files), tuple(files), _alias.get())


def known_hosts(client: Any) -> Any:
    """Where a client looks for host keys."""
    return client._host_keys


def known_hosts_file(client: Any) -> Path:
    """The file in which a client looks for host keys."""
    return Path(client._host_keys_filename)


def trust_host_key(client: Any, hostname: str, key: Any) -> None:
    """A client knows this key of a host from now on, as if it had read it."""
    client._host_keys.add(hostname, key.get_name(), key)


def name_jump_hosts_as_ssh_does() -> None:
    """pyinfra hands on a jump host's Port as text, and paramiko then looks for "[host]:22" in known_hosts."""
    original = ssh_client.SSHClient.derive_shorthand

    def derive_shorthand(ssh_config: Any, hop: str) -> tuple[str, dict[str, Any]]:
        hostname, found = original(ssh_config, hop)
        return hostname, {**found, "port": int(found["port"])}

    ssh_client.SSHClient.derive_shorthand = staticmethod(derive_shorthand)
