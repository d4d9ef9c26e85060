"""A repository of a checkpoint: on a hub at one commit, or a folder or a GGUF file on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rigup.checkpoints.byte_source import ByteSource, hub_file, local_file
from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.regular_files import MAY_READ, is_absent, read_bytes
from rigup.service import HOST_PATH
from rigup.sources.gguf_files import SPLIT
from rigup.sources.hub import Hub, HubFile
from rigup.sources.ollama import OllamaModel, OllamaRegistry
from rigup.units import bytes_text

MOST_FILES = 10_000
REPO = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*")
LOCAL = "local"


@dataclass(frozen=True)
class Repository:
    """name: "org/model", as the catalogue has it. where: how messages begin. label: in sources, with the revision.

    files: size in bytes by path. content: of a small file. source: a file to read parts of.
    location: where the files are, if not in `name` on the hub (`rigup.service.location_of`).
    """

    name: str
    where: str
    label: str
    revision: str | None
    files: Mapping[str, int]
    content: Callable[[str], bytes]
    source: Callable[[str], ByteSource]
    location: str = ""

    def small(self, path: str, most: int) -> bytes | None:
        """The content of a file that may be absent. Raises InputError for one that is larger than `most` bytes."""
        if path not in self.files:
            return None
        if self.files[path] > most:
            size = bytes_text(self.files[path])
            raise InputError(
                f"{self.where}: {path}: {size} are more than the limit of {bytes_text(most)}",
                "choose another revision: this one is damaged",
            )
        return self.content(path)

    def optional(self, path: str, most: int) -> bytes | None:
        """The content of a file; None where it is absent or larger than `most` bytes."""
        return self.content(path) if self.files.get(path, most + 1) <= most else None


def hub_repository(hub: Hub, repo: str, revision: str) -> Repository:
    """A repository of a hub. Raises InputError for one that is missing or gated, and Unreachable."""
    commit = hub.commit(repo, revision)
    return listed_repository(hub, repo, commit, hub.files(repo, commit))


def listed_repository(hub: Hub, repo: str, commit: str, files: Mapping[str, HubFile]) -> Repository:
    """A repository of a hub whose files at a commit are known."""
    return Repository(
        repo,
        repo,
        f"{repo}@{commit[:12]}",
        commit,
        {path: file.size for path, file in files.items()},
        lambda path: hub.content(repo, commit, files[path]),
        lambda path: hub_file(hub, repo, commit, files[path]),
    )


def ollama_repository(registry: OllamaRegistry, location: str) -> tuple[Repository, OllamaModel]:
    """What a name in Ollama's registry stands for now: one GGUF file. Raises InputError and Unreachable."""
    model = registry.model(location)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", location.removeprefix("ollama:"))
    file = f"{name}-{model.quant}.gguf" if model.quant else f"{name}.gguf"

    def part(start: int, count: int) -> bytes:
        return registry.part(location, model, start, count)

    source = ByteSource(location, model.size, "choose another tag: this one is damaged", part)
    label = f"{location}@{model.manifest[:12]}"
    repository = Repository(
        f"ollama/{name}",
        location,
        label,
        None,
        {file: model.size},
        lambda _: part(0, model.size),
        lambda _: source,
        location,
    )
    return repository, model


def local_repository(path: Path, repo: str | None) -> Repository:
    """A folder, or one GGUF file and the shards beside it. repo: the name in the catalogue, by default local/NAME.

    Raises InputError where it cannot be read.
    """
    if is_absent(path):
        raise InputError(f"{path}: does not exist", "check the path; a repository of the hub is written org/name")
    folder = path if path.is_dir() else path.parent
    place = os.path.abspath(path)
    try:
        found = sorted(each for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", MAY_READ) from None
    if path != folder:
        names = files_of(place, [each.name for each in found])
        found = [each for each in found if each.name in names]
    if len(found) > MOST_FILES:
        raise InputError(f"{path}: more than {MOST_FILES:,} files", "name the folder of one checkpoint")
    return Repository(
        repo or local_name(place),
        str(path),
        str(path),
        None,
        {each.name: each.stat().st_size for each in found},
        lambda file: read_bytes(folder / file),
        lambda file: local_file(folder / file),
        place if repo is None and HOST_PATH.fullmatch(place) else "",
    )


def local_name(place: str) -> str:
    """The name in the catalogue of a checkpoint that is not from a hub, by its absolute path."""
    name = place.rpartition("/")[2].removesuffix(".gguf")
    split = SPLIT.fullmatch(name)
    return f"{LOCAL}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', split['stem'] if split else name).lstrip('-.') or 'model'}"


def files_of(place: str, names: Sequence[str]) -> tuple[str, ...]:
    """A GGUF file and its shards, out of the names in its folder. Raises InputError for another than the first."""
    folder, _, name = place.rpartition("/")
    split = SPLIT.fullmatch(name.removesuffix(".gguf"))
    if split is None:
        return tuple(each for each in names if each == name)
    if int(split["number"]) != 1:
        first = f"{split['stem']}-00001-of-{split['count']}.gguf"
        raise InputError(f"{place}: not the first of {int(split['count'])} shards", f"name {folder}/{first}")
    return tuple(each for each in names if each.startswith(f"{split['stem']}-") and each.endswith(".gguf"))


def repo_and_quant(text: str) -> tuple[str, str | None]:
    """The parts of "org/model:Q8_0". Raises InputError for what is not a name of a repository."""
    repo, colon, quant = text.partition(":")
    if not REPO.fullmatch(repo) or ".." in repo or (colon and not re.fullmatch(r"[\w.-]{1,64}", quant)):
        raise InputError(
            f"{quoted(text)} is neither a repository nor a file or folder here",
            "write org/name or org/name:QUANTISATION, or the path of a folder or a .gguf file",
        )
    return repo, quant or None
