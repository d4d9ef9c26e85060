"""The interface of a host for operations, facts and runs, and the state that a run keeps about it."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class SessionsInUse(OSError):
    """Raised if the time for a command was up before one of the sessions that a host allows was free for it."""


class CommandLines(Protocol):
    """The output of a command, as pyinfra returns it."""

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...

    @property
    def stdout_lines(self) -> list[str]: ...

    @property
    def stderr_lines(self) -> list[str]: ...


class Host(Protocol):
    """A machine that a run is connected to. `data` is its inventory data, `connector` the connection to it.

    `connector_data` is this run's memory of the host; use `state_of`.
    """

    connected: bool

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> list[str]: ...

    @property
    def data(self) -> Any: ...

    @property
    def state(self) -> Any: ...

    @property
    def connector(self) -> Any: ...

    @property
    def connector_data(self) -> dict[Any, Any]: ...

    def run_shell_command(self, command: Any, *arguments: Any, **more: Any) -> tuple[bool, CommandLines]:
        """Runs a command to its end. Returns whether it succeeded, and its output.

        Raises OSError, EOFError, SSHException or TimeoutError where the connection is lost, HostFailed where the host
        prints without end.
        """

    def put_file(self, filename_or_io: Any, remote_filename: str, *arguments: Any, **more: Any) -> bool:
        """Writes a file to the host."""

    def get_file(self, remote_filename: str, filename_or_io: Any, *arguments: Any, **more: Any) -> bool:
        """Reads a file from the host."""

    def get_fact(self, fact: Any, *arguments: Any, **more: Any) -> Any:
        """A fact of the host, read now or recently."""

    def noop(self, description: str) -> None:
        """Reports, within an operation, why there is nothing to do."""

    def connect(self, *arguments: Any, **more: Any) -> Any:
        """Connects if not connected yet."""


Kind = TypeVar("Kind")


def state_of(host: Host, kind: type[Kind]) -> Kind:
    """This run's state of one kind about a host: a dataclass whose fields all have defaults. Created at first use."""
    # pyinfra looks through the keys when it disconnects, and expects strings
    made: Kind = host.connector_data.setdefault(f"{kind.__module__}.{kind.__qualname__}", kind())
    return made


def uses_sudo(host: Host) -> bool:
    """Whether commands that need root go through sudo, as the inventory or a plain pyinfra run says."""
    return bool(getattr(host.data, "_sudo", None) or host.state.config.SUDO)
