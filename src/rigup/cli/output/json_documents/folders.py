"""Documents about the fleet's folder and the lab: `lock`, `model`, `metrics`, `lab`."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from rigup.cli.output.json_documents.shared import ErrorText, FileAction, Schema, ServiceOfHost
from rigup.lockfile.package_diff import PackageMove
from rigup.monitoring.scrape_config import ScrapeTarget, SkippedTarget


class LockChange(TypedDict):
    """An entry that changed. against: the entry that its packages were compared with."""

    name: str
    change: str
    before: str | None
    after: str | None
    against: str | None
    packages: list[PackageMove]


class VendoredFolder(TypedDict):
    """The folder with everything that the lock pins. fetched: how many files are new."""

    folder: str
    files: int
    bytes: int
    fetched: int


class LockDocument(TypedDict):
    """`rigup lock --json`. refused: services without a plan."""

    schema: Schema
    lock: str
    written: bool
    changes: list[LockChange]
    warnings: list[str]
    not_locked: list[str]
    vendored: VendoredFolder | None
    refused: list[ServiceOfHost]
    error: NotRequired[ErrorText]


class LockCheckDocument(TypedDict):
    """`rigup lock --check --json`: a sentence for each entry that is missing or would move."""

    schema: Schema
    stale: list[str]


class AddedModelDocument(TypedDict):
    """`rigup model add --json`: the entries, as in the catalogue's files."""

    schema: Schema
    model: dict[str, Any]
    model_known: bool
    checkpoint: dict[str, Any]
    bytes_read: int
    files: list[FileAction]


class MetricsDocument(TypedDict):
    """`rigup metrics --json`."""

    schema: Schema
    targets: list[ScrapeTarget]
    left_out: list[SkippedTarget]
    written: list[str]


class MachineText(TypedDict):
    """A lab machine. rate: the limit of its network, null without one."""

    name: str
    address: str
    ssh_port: int
    inner_address: str
    power: Literal["on", "off"]
    cable: Literal["plugged", "cut"]
    rate: str | None


class LabText(TypedDict):
    """A lab. hub: the address of its model hub for its machines; null without one."""

    name: str
    suite: str
    disk: str
    folder: str
    ssh_config: str
    inventory: str
    hub: str | None
    machines: list[MachineText]


class LabsDocument(TypedDict):
    """`rigup lab up --json` and `rigup lab list --json`."""

    schema: Schema
    labs: list[LabText]


class LabsDownDocument(TypedDict):
    """`rigup lab down --json`: the labs that were removed."""

    schema: Schema
    down: list[str]


class LabImageDocument(TypedDict):
    """`rigup lab base --json`."""

    schema: Schema
    image: str


class LabMachineDocument(MachineText):
    """`rigup lab cut|heal|rate|kill|start --json`."""

    schema: Schema


class LabGpuDocument(TypedDict):
    """`rigup lab gpu --json`."""

    schema: Schema
    machine: str
    gpu: int
    action: str
