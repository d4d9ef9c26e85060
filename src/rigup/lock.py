"""`rigup.lock`: every version, revision and hash that a plan depends on. TOML, sorted, readable in a diff."""

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from rigup.artifacts import (
    Architecture,
    LockedEnvironment,
    LockedHarness,
    LockedImage,
    LockedNccl,
    LockedSmg,
    LockedUv,
    Sha256,
    Variant,
    Word,
)
from rigup.errors import InputError
from rigup.plain_values import cut, quoted
from rigup.printable import one_line
from rigup.regular_files import is_absent, read_text, toml_of
from rigup.service import HOST_PATH, EngineName, Location, NamedCacheType
from rigup.tensor_bytes import TensorBytes
from rigup.units import Frozen

SCHEMA = 1
LARGEST_FILE = 2**44
MOST_FILES = 20_000
LONGEST_SHOWN = 200
"""Characters of a value in a message: a hash and an address of usual length are shown whole."""
RESTORE_HINT = "restore the lock from version control, or delete the entry and run rigup lock"


# below a folder: no "." or "..", nothing that a program could take for an option, in printable ASCII
_PART = r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*"
FolderPath = Annotated[str, Field(pattern=rf"^{_PART}(/{_PART})*$")]
Package = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+-]*$")]


class LockedFile(Frozen):
    """One file of a checkpoint: its path inside the repository, size in bytes and sha256."""

    model_config = ConfigDict(regex_engine="python-re")  # the default engine has no look-ahead

    path: Annotated[str, Field(pattern=r"^(?!.*(^|/)(\.{0,2}|-[^/]*)(/|$))[\w.+ /-]+\Z")]
    size: Annotated[int, Field(ge=0, le=LARGEST_FILE, strict=True)]
    sha256: Sha256


class LockedCheckpoint(Frozen):
    """One checkpoint at one revision. `files` is complete: what is not listed is not downloaded.

    location: where the files are, if not in `repo` on the hub (`rigup.service.location_of`). `revision` is then made of
    their hashes, or Ollama's manifest's. read_tensors: where its bytes lie, None where the headers were not read.
    template_tools: whether its chat template takes tools, None where none was read. kv_cache_type: that its
    configuration names. context: that it allows, where that is less than the model's. Both as in
    `rigup.catalogue.checkpoint.CheckpointEntry`.
    """

    repo: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
    quant: Word
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    files: Annotated[tuple[LockedFile, ...], Field(max_length=MOST_FILES)]
    location: Location = ""
    read_tensors: TensorBytes | None = None
    template_tools: bool | None = None
    kv_cache_type: NamedCacheType | None = None
    context: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _has_plain_names(self) -> Self:
        if self.location and any(HOST_PATH.fullmatch(f"/{file.path}") is None for file in self.files):
            raise ValueError("a file has a name that a systemd unit cannot contain")
        return self

    @property
    def name(self) -> tuple[str, str]:
        """Its identity: one quantisation of one repository."""
        return self.repo, self.quant

    @property
    def bytes(self) -> int:
        """The whole download, in bytes."""
        return sum(file.size for file in self.files)


class LockedSource(Frozen):
    """A source archive of an engine.

    address: an https URL, or `pypi:PROJECT==VERSION` for the sdist of that release on the index that pip is set up for.
    root: the folder inside the archive that holds the tree to build.
    """

    engine: EngineName
    version: Word
    address: Annotated[str, Field(pattern=r"^[!-?A-~]{1,2000}$")]
    sha256: Sha256
    root: FolderPath

    @property
    def name(self) -> tuple[str, str]:
        """Its identity: one version of an engine."""
        return self.engine, self.version


class LockedDriver(Frozen):
    """NVIDIA's driver: its version as NVIDIA writes it, without a package's revision, and the branch to stay in."""

    version: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){1,2}$")]
    branch: Annotated[str, Field(pattern=r"^[0-9]+$")]

    @model_validator(mode="after")
    def _of_its_branch(self) -> Self:
        if self.version.partition(".")[0] != self.branch:
            raise ValueError(f"version {self.version} is not of branch {self.branch}")
        return self


class LockedCudaToolkit(Frozen):
    """The CUDA toolkit: its version, and by package name the version of each package that rigup installs of it."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    packages: dict[Package, Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)+$")]]


class Lock(Frozen):
    """The whole file. Look things up with its methods; each returns None when the lock has no such entry.

    engines: the version that `rigup lock --upgrade ENGINE=VERSION` chose for services that name none.
    inputs: for each inventory that was locked, by its path below the fleet's folder, the digest of what was asked for.
    moe_configs: tuned fused-MoE configs by their path below `files/moe_configs`.
    harnesses: of `rigup eval`, one for each kind of controlling machine.
    """

    schema_version: Annotated[int, Field(alias="schema", ge=1, strict=True)] = SCHEMA
    inputs: dict[str, Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]] = {}
    engines: dict[EngineName, Annotated[str, Field(pattern=r"^b?[0-9][A-Za-z0-9_.+!]*$")]] = {}
    driver: LockedDriver | None = None
    cuda_toolkit: LockedCudaToolkit | None = None
    uv: LockedUv | None = None
    smg: LockedSmg | None = None
    nccl: LockedNccl | None = None
    sources: tuple[LockedSource, ...] = ()
    environments: tuple[LockedEnvironment, ...] = ()
    images: tuple[LockedImage, ...] = ()
    checkpoints: tuple[LockedCheckpoint, ...] = ()
    moe_configs: dict[FolderPath, Sha256] = {}
    harnesses: tuple[LockedHarness, ...] = ()

    def source(self, engine: str, version: str) -> LockedSource | None:
        """The source archive of one engine version."""
        return next((s for s in self.sources if s.name == (engine, version)), None)

    def environment(
        self, engine: str, version: str, variant: Variant, architecture: Architecture
    ) -> LockedEnvironment | None:
        """The Python environment of one engine version on one kind of machine."""
        wanted = (engine, version, variant, architecture)
        return next((e for e in self.environments if e.name == wanted), None)

    def image(self, engine: str, version: str, variant: Variant, architecture: Architecture) -> LockedImage | None:
        """The container image of one engine version for one kind of machine."""
        wanted = (engine, version, variant, architecture)
        return next((i for i in self.images if i.name == wanted), None)

    def harness(self, python: str, architecture: str) -> LockedHarness | None:
        """The evaluation harness for a kind of controlling machine."""
        return next((h for h in self.harnesses if h.name == (python, architecture)), None)

    def checkpoint(self, repo: str, quant: str) -> LockedCheckpoint | None:
        """One quantisation of one repository."""
        return next((c for c in self.checkpoints if c.name == (repo, quant)), None)


def load_lock(path: Path) -> Lock:
    """Reads a lock; a missing file is an empty lock. Raises InputError naming file, line, key and what is wrong."""
    if is_absent(path):
        return Lock()
    text = read_text(path)
    data = toml_of(path, text, RESTORE_HINT)
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise InputError(
            f"{path}: schema: {quoted(schema)} is newer than this rigup understands ({SCHEMA})", "upgrade rigup"
        )
    try:
        lock = Lock.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{_place(path, text, first['loc'])}: {_message(first)}", RESTORE_HINT) from None
    _refuse_twins(path, text, lock)
    return lock


def _refuse_twins(path: Path, text: str, lock: Lock) -> None:
    """Raises InputError for two entries with one name, even if they are equal."""
    for table in ("checkpoints", "sources", "environments", "images", "harnesses"):
        seen: set[tuple[str, ...]] = set()
        for number, entry in enumerate(getattr(lock, table)):
            if entry.name in seen:
                place = _place(path, text, (table, number))
                raise InputError(f"{place}: {' '.join(entry.name)} is listed twice", RESTORE_HINT)
            seen.add(entry.name)


def _place(path: Path, text: str, keys: tuple[int | str, ...]) -> str:
    """The place of a value, "rigup.lock:12: checkpoints[0].files[1].size"; a missing one at its table."""
    keys = tuple(key for key in keys if key != "[key]")  # the validator's mark for "the key itself"
    words = "".join(f"[{key}]" if isinstance(key, int) else f".{cut(key)}" for key in keys).removeprefix(".")
    return f"{path}:{_line(text, keys)}: {words}"


def _line(text: str, keys: tuple[int | str, ...]) -> int:
    """The line of a value, counted from 1, in a file that has one key a line; tomllib does not keep positions."""
    lines, at, table = text.splitlines(), 0, ""
    for key in keys:
        if isinstance(key, int):
            heads = _starting(rf"\[\[{re.escape(table)}\]\]", lines, at, len(lines))
            at = heads[key] if key < len(heads) else at
            continue
        table = f"{table}.{key}".removeprefix(".")
        end = next((number for number in range(at + 1, len(lines)) if lines[number].startswith("[")), len(lines))
        here = _starting(rf'"?{re.escape(key)}"?\s*=', lines, at, end)
        at = next(iter(here or _starting(rf"\[{re.escape(table)}\]", lines, at, len(lines))), at)
    return at + 1


def _starting(pattern: str, lines: list[str], first: int, end: int) -> list[int]:
    """Which of lines[first:end] start with a pattern."""
    return [number for number in range(first, end) if re.match(pattern, lines[number])]


def _message(error: Any) -> str:
    """The problem with a value, in terms of the file rather than of the validator."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "string_pattern_mismatch":
        shown = one_line(value)
        return f'"{shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "..."}" is not valid here'
    message: str = error["msg"].removeprefix("Value error, ")
    return message[0].lower() + message[1:]
