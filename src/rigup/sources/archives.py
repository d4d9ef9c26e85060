"""Source archives of engines on the controlling machine: fetched once, checked by the lock, kept under their hash."""

from __future__ import annotations

import hashlib
import tarfile
import urllib.parse
import zlib
from pathlib import Path

from rigup.checksum import sha256_of
from rigup.errors import InputError
from rigup.lock import LockedSource
from rigup.sources.downloads import Progress, download, fetch, locked, silent


def fetch_source(source: LockedSource, cache: Path, progress: Progress) -> Path:
    """The archive of a locked source, as a file in `cache`; downloads it, or the rest of it, where it is not there yet.

    progress: called with bytes done and bytes in all (0 while unknown). Nothing in the archive is unpacked or run.
    Raises Unreachable where it cannot be had, and HostFailed where it is not what the lock pins; that is not kept.
    """
    what = f"{source.engine} {source.version}: {source.address}"
    return fetch(
        lambda: source_url(source.engine, source.version, source.address),
        what,
        source.sha256,
        cache / source.sha256,
        progress,
    )


def pin_source(
    engine: str, version: str, address: str, root: str, cache: Path, progress: Progress = silent
) -> LockedSource:
    """What the lock says of a source archive that it does not have yet: downloads it into `cache` and hashes it.

    address, root: as `lock.LockedSource` has them. The archive stays in the cache, where `fetch_source` finds it.
    Raises InputError where nothing lies at the address or the archive is without `root`, Unreachable where it cannot be
    asked for.
    """
    what = f"{engine} {version}: {address}"
    url = source_url(engine, version, address)
    cache.mkdir(parents=True, exist_ok=True)
    # What is continued must be of one file: the address may hold another one next time.
    part = cache / f"{hashlib.sha256(url.encode()).hexdigest()}.new"
    with locked(part.with_suffix(".lock")):
        part.unlink(missing_ok=True)
        try:
            download(url, what, part, progress)
            _require_root(what, part, root)
            sha256 = sha256_of(part)
            part.replace(cache / sha256)
        finally:
            part.unlink(missing_ok=True)
    return LockedSource(engine=engine, version=version, address=address, sha256=sha256, root=root)


def _require_root(what: str, archive: Path, root: str) -> None:
    """Raises InputError unless a tar archive holds something below a folder."""
    try:
        with tarfile.open(archive) as opened:
            if any(f"{member.name}/".startswith(f"{root.rstrip('/')}/") for member in opened):
                return
    except (tarfile.TarError, EOFError, zlib.error):
        raise InputError(f"{what}: not a tar archive", "check the URL") from None
    raise InputError(f"{what}: the archive has no folder {root}", "correct archive_root in the engine's file")


def source_url(engine: str, version: str, address: str) -> str:
    """The URL behind the lock's address."""
    scheme, _, rest = address.partition(":")
    where = f"rigup.lock: sources: {engine} {version}: address"
    if scheme == "https":
        if "@" in urllib.parse.urlsplit(address).netloc:
            raise InputError(f"{where}: it contains a user name or password", "use a source that needs no login")
        return address
    if scheme == "pypi" and rest.count("==") == 1:
        from rigup.sources.package_index import find_sdist  # few runs fetch anything

        project, version = rest.split("==")
        return find_sdist(project, version)
    raise InputError(f'{where}: "{address}" is neither an https URL nor pypi:PROJECT==VERSION')
