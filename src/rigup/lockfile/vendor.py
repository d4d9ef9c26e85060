"""`rigup lock --vendor DIR`: what a lock pins and hosts get from outside, in one folder, for hosts that reach nothing.

DIR/wheels/<file>, DIR/sources/<sha256>, DIR/python/<as uv's mirrors>, DIR/weights/<repository>/<revision>/<path>, and
DIR/manifest.json. A file has its name only when its sha256 was right, so that what broke off is continued; a Python,
whose sha256 uv alone knows, lies in DIR/python/.unchecked until uv has taken it.
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
from rigup.sources.archives import source_url
from rigup.sources.downloads import LARGEST_DOWNLOAD, download, fetch, sha256_of
from rigup.sources.hub import Hub
from rigup.sources.package_index import find_links
from rigup.sources.uv import python_release, require_python, url_of, uv_program

MANIFEST = "manifest.json"
UNCHECKED = ".unchecked"
SCHEMA = 1


@dataclass(frozen=True)
class PinnedFile:
    """One file that a lock pins: its path below the folder, and where it is to be had."""

    path: str
    sha256: str
    find_url: Callable[[], str]
    auth: AuthBase | None = None
    most_bytes: int = LARGEST_DOWNLOAD

    @property
    def name(self) -> str:
        """As messages call it."""
        return self.path.partition("/")[2]


@dataclass
class VendoredFiles:
    """What lies in the folder. fetched: how many of its files are new. beside: what could not be had, and may lack."""

    folder: Path
    files: dict[str, dict[str, str | int]] = field(default_factory=dict)
    fetched: int = 0
    beside: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(int(entry["size"]) for entry in self.files.values())


def vendor(
    lock: Lock, folder: Path, log: Callable[[str], None], hub_of: Callable[[str], Hub] | None = None
) -> VendoredFiles:
    """Collects everything that a lock pins; what is there already is checked and kept.

    hub_of: the hub of a repository, where weights are wanted too. Raises Unreachable naming what could not be had,
    after everything else was fetched; HostFailed on another sha256; InputError where the folder cannot be written.
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
        told = {"schema": SCHEMA, "files": dict(sorted(done.files.items()))}
        (folder / MANIFEST).write_text(json.dumps(told, indent=1) + "\n")
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", "check permissions and free disk space") from None
    if failed:
        first, more = failed[0], len(failed) - 1
        message = first.message + (f"; and {more} more of {len(done.files) + len(failed)} files" if more else "")
        raise type(first)(message, f"run the same command again; it keeps finished files ({first.hint})")
    return done


def wanted_files(lock: Lock, hub_of: Callable[[str], Hub] | None = None) -> Iterator[PinnedFile]:
    """Every file with a sha256 in a lock, once."""
    wheels: dict[str, PinnedFile] = {}
    for name, sha256 in lock.uv.files.items() if lock.uv else ():
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
            yield from _weights(checkpoint, hub_of(checkpoint.repo))


def _wheel(name: str, sha256: str, environment: LockedEnvironment | None) -> PinnedFile:
    address = environment.addresses.get(name) if environment else None
    return PinnedFile(f"wheels/{name}", sha256, lambda: address or url_of(name))


def _weights(checkpoint: LockedCheckpoint, hub: Hub) -> Iterator[PinnedFile]:
    for file in checkpoint.files:
        url = hub.url(checkpoint.repo, checkpoint.revision, file.path)
        path = f"weights/{checkpoint.repo}/{checkpoint.revision}/{file.path}"
        yield PinnedFile(path, file.sha256, functools.partial(str, url), hub.auth, file.size)


def _have(wanted: PinnedFile, folder: Path, log: Callable[[str], None]) -> bool:
    """Sees to it that a file is there and is the pinned one; whether it had to be got."""
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
    """The Pythons of environments, from where uv gets them, checked by uv. Where that is out of reach, it is said."""
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
                with suppress(OSError):  # another one may be underway there
                    found.parent.rmdir()
                    unchecked.rmdir()
                done.fetched += 1
            done.files[path] = {"sha256": sha256_of(target), "size": target.stat().st_size}
        except (Unreachable, InputError, HostFailed) as error:
            done.beside.append(f"{error.message}: set python_mirror, or install this Python on the hosts")
