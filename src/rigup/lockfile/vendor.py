"""`rigup lock --vendor DIR`: downloads what a lock pins into one folder, for hosts without internet access.

DIR/wheels/<file>, DIR/sources/<sha256>, DIR/python/<as uv's mirrors>, DIR/weights/<repository>/<revision>/<path>, and
DIR/manifest.json. A file gets its name only after its sha256 was checked, so that an interrupted run can continue. Only
uv knows the sha256 of a Python, so a Python stays in DIR/python/.unchecked until uv has accepted it.
"""

from __future__ import annotations

import functools
import json
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from requests.auth import AuthBase

from rigup.artifacts import LockedEnvironment
from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.lock import Lock, LockedCheckpoint
from rigup.regular_files import sha256_of
from rigup.sources.archives import source_url
from rigup.sources.downloads import LARGEST_DOWNLOAD, download, fetch
from rigup.sources.hub import Hub
from rigup.sources.ollama import OllamaRegistry
from rigup.sources.package_index import find_links
from rigup.sources.uv import python_release, require_python, url_of, uv_program

MANIFEST = "manifest.json"
UNCHECKED = ".unchecked"
SCHEMA = 1

WeightsSource = Callable[[LockedCheckpoint], Hub | OllamaRegistry]


@dataclass(frozen=True)
class PinnedFile:
    """One file that a lock pins: its path below the folder, and how to download it."""

    path: str
    sha256: str
    find_url: Callable[[], str]
    auth: AuthBase | None = None
    most_bytes: int = LARGEST_DOWNLOAD

    @property
    def name(self) -> str:
        """The name of the file in messages."""
        return self.path.partition("/")[2]


@dataclass
class VendoredFiles:
    """The contents of the folder. fetched: how many files are new. beside: messages about Pythons that are missing."""

    folder: Path
    files: dict[str, dict[str, str | int]] = field(default_factory=dict)
    fetched: int = 0
    beside: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(int(entry["size"]) for entry in self.files.values())


def vendor(lock: Lock, folder: Path, log: Callable[[str], None], hub_of: WeightsSource | None = None) -> VendoredFiles:
    """Downloads everything that a lock pins; checks and keeps files that are already there.

    hub_of: returns where a checkpoint comes from; None leaves weights out. Raises Unreachable for a failed download,
    after trying all other files; HostFailed if a sha256 is wrong; InputError if the folder cannot be written.
    """
    done = VendoredFiles(folder)
    failed: list[RigupError] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for wanted in wanted_files(lock, hub_of):
            try:
                done.fetched += _have(wanted, folder, log)
            except (Unreachable, InputError, HostFailed) as error:
                failed.append(error)
                continue
            done.files[wanted.path] = {"sha256": wanted.sha256, "size": (folder / wanted.path).stat().st_size}
        _pythons(lock, done, log)
        manifest = {"schema": SCHEMA, "files": dict(sorted(done.files.items()))}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", "check permissions and free disk space") from None
    if failed:
        first, more = failed[0], len(failed) - 1
        message = first.message + (f"; and {more} more of {len(done.files) + len(failed)} files" if more else "")
        raise type(first)(message, f"run the same command again; it keeps finished files ({first.hint})")
    return done


def wanted_files(lock: Lock, hub_of: WeightsSource | None = None) -> Iterator[PinnedFile]:
    """Every file that a lock pins by sha256, once each."""
    wheels: dict[str, PinnedFile] = {}
    for program in (lock.uv, lock.smg, lock.nccl):
        for name, sha256 in program.files.items() if program else ():
            wheels[name] = _wheel(name, sha256, None)
    for environment in lock.environments:
        for name, sha256 in environment.files.items():
            if wheels.setdefault(name, _wheel(name, sha256, environment)).sha256 != sha256:
                raise InputError(
                    f"rigup.lock: {name} has two sha256 values, {wheels[name].sha256} and {sha256}",
                    "run rigup lock again so that both use one file",
                )
    yield from (wheels[name] for name in sorted(wheels))
    for source in lock.sources:
        url = functools.partial(source_url, source.engine, source.version, source.address)
        yield PinnedFile(f"sources/{source.sha256}", source.sha256, url)
    if hub_of is not None:
        for checkpoint in lock.checkpoints:
            if checkpoint.location.startswith("/"):
                continue  # lies on the hosts already
            yield from _weights(checkpoint, hub_of(checkpoint))


def _wheel(name: str, sha256: str, environment: LockedEnvironment | None) -> PinnedFile:
    address = environment.addresses.get(name) if environment else None
    return PinnedFile(f"wheels/{name}", sha256, lambda: address or url_of(name))


def _weights(checkpoint: LockedCheckpoint, source: Hub | OllamaRegistry) -> Iterator[PinnedFile]:
    for file in checkpoint.files:
        if isinstance(source, OllamaRegistry):
            url, auth = f"{source.blobs(checkpoint.location)}/sha256:{file.sha256}", None
        else:
            url, auth = source.url(checkpoint.repo, checkpoint.revision, file.path), source.auth
        path = f"weights/{checkpoint.repo}/{checkpoint.revision}/{file.path}"
        yield PinnedFile(path, file.sha256, functools.partial(str, url), auth, file.size)


def _have(wanted: PinnedFile, folder: Path, log: Callable[[str], None]) -> bool:
    """Ensures that the pinned file is there; returns whether it had to be copied or downloaded."""
    target = folder / wanted.path
    if target.exists():
        if sha256_of(target) == wanted.sha256:
            return False
        log(f"{wanted.name}: does not match rigup.lock; downloading it again")
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    near = [place / wanted.name for place in find_links()] + [cache_folder() / "sources" / wanted.sha256]
    for place in near:
        if place.is_file() and sha256_of(place) == wanted.sha256:
            part = target.with_name(f"{target.name}.part")
            shutil.copyfile(place, part)
            part.replace(target)
            return True
    log(f"fetching {wanted.name}")
    fetch(wanted.find_url, wanted.name, wanted.sha256, target, auth=wanted.auth, most_bytes=wanted.most_bytes)
    target.with_name(f"{target.name}.lock").unlink(missing_ok=True)
    return True


def _pythons(lock: Lock, done: VendoredFiles, log: Callable[[str], None]) -> None:
    """Downloads the Pythons of the environments; uv checks them. A failed download only adds a message."""
    pythons = {(e.python, e.architecture) for e in lock.environments if e.python_from == "uv"}
    for version, architecture in sorted(pythons) if lock.uv else ():
        assert lock.uv is not None
        try:
            program = uv_program(lock.uv)
            _, url = python_release(program, version, architecture)
            parts = urllib.parse.unquote(urllib.parse.urlsplit(url).path).split("/")[-2:]
            unchecked, path = done.folder / "python" / UNCHECKED, "/".join(("python", *parts))
            target = done.folder / path
            if not target.exists():
                log(f"fetching Python {version} for {architecture}")
                found = unchecked.joinpath(*parts)
                found.parent.mkdir(parents=True, exist_ok=True)
                download(url, f"Python {version}", found)
                try:
                    require_python(program, unchecked, version, architecture)
                except RigupError:
                    found.unlink()
                    raise
                target.parent.mkdir(parents=True, exist_ok=True)
                found.replace(target)
                with suppress(OSError):  # another download may be using it
                    found.parent.rmdir()
                    unchecked.rmdir()
                done.fetched += 1
            done.files[path] = {"sha256": sha256_of(target), "size": target.stat().st_size}
        except (Unreachable, InputError, HostFailed) as error:
            done.beside.append(f"{error.message}: set python_mirror, or install this Python on the hosts")
