"""Documents of verbs for running services and their cards: `chat`, `tunnel`, `logs`, `key`, `exec`, `verify`."""

from typing_extensions import TypedDict

from rigup.cli.output.json_documents.shared import ErrorText, HostOutcome, Schema
from rigup.facts.gpu_load import HostLoad
from rigup.facts.links import Links
from rigup.preflight.links import LinkFinding


class ChatDocument(TypedDict):
    """`rigup chat SERVICE PROMPT --json`. tokens_per_second: after the first token; null for an answer in one piece."""

    schema: Schema
    host: str
    service: str
    model: str
    text: str
    reasoning: str | None
    tokens: int
    finish: str | None
    seconds: float
    first_token_seconds: float
    tokens_per_second: float | None


class Tunnel(TypedDict):
    """A service at this machine's loopback address. api_key: whether it wants one."""

    host: str
    service: str
    model: str | None
    base_url: str
    api_key: bool


class TunnelDocument(TypedDict):
    """`rigup tunnel --json`, while the tunnels are open."""

    schema: Schema
    tunnels: list[Tunnel]


class LogLine(TypedDict):
    """One line of `rigup logs --json`: an entry of a journal. priority: 0 (emergency) to 7 (debug)."""

    schema: Schema
    time: str
    host: str
    service: str
    priority: int
    message: str


class ServiceKey(TypedDict):
    """The API key of a service, as its host has it."""

    host: str
    service: str
    key: str


class KeysDocument(TypedDict):
    """`rigup key show --json`; services without a key are left out."""

    schema: Schema
    keys: list[ServiceKey]


class KeyRotationDocument(TypedDict):
    """`rigup key rotate --json`. file: the user's own that has the new key; null where the hosts have it."""

    schema: Schema
    hosts: list[HostOutcome]
    file: str | None


class CommandOutcome(TypedDict):
    """A command on one host. status: null if it did not end. truncated: whether it printed more than is here."""

    host: str
    state: str
    status: int | None
    stdout: str
    stderr: str
    truncated: bool
    errors: list[ErrorText]


class ExecDocument(TypedDict):
    """`rigup exec --json`."""

    schema: Schema
    hosts: list[CommandOutcome]


class VerifiedHost(TypedDict):
    """A host's cards. state: "well", "problems", or how it failed. links: null if they could not be read.

    load: null without --load.
    """

    host: str
    state: str
    findings: list[LinkFinding]
    links: Links | None
    load: HostLoad | None
    errors: list[ErrorText]


class VerifyDocument(TypedDict):
    """`rigup verify --json`."""

    schema: Schema
    hosts: list[VerifiedHost]
