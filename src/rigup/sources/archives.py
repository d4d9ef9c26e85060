"""Source archives of engines on the controlling machine: downloaded once, checked against the lock, cached by hash."""

from __future__ import annotations

import hashlib
import tarfile
import urllib.parse
import zlib
from pathlib import Path

from rigup.errors import InputError
from rigup.lock import LockedSource
from rigup.regular_files import sha256_of
from rigup.sources.downloads import Progress, download, fetch, locked


def fetch_source(source: LockedSource, cache: Path, progress: Progress) -> Path:
    """The archive of a locked source, as a file in `cache`; downloads what the cache does not have yet.

    progress: called with the bytes so far and the total in bytes (0 while unknown). rigup does not unpack or run the
    archive. Raises Unreachable if the download fails, and HostFailed if the hash is not the locked one; rigup then
    deletes the file.
    """
    what = f"{source.engine} {source.version}: {source.address}"
    return fetch(
        lambda: source_url(source.engine, source.version, source.address),
        what,
        source.sha256,
        cache / source.sha256,
        progress,
    )


def pin_source(engine: str, version: str, address: str, root: str, cache: Path) -> LockedSource:
    """Downloads a source archive into `cache`, hashes it, and returns the entry for the lock.

    address, root: as in `lock.LockedSource`. The archive stays in the cache, where `fetch_source` finds it.
    Raises InputError if the address has no archive or the archive has no folder `root`, and Unreachable if the server
    does not respond.
    """
    what = f"{engine} {version}: {address}"
    url = source_url(engine, version, address)
    cache.mkdir(parents=True, exist_ok=True)
    # Each run starts from scratch, because the file behind the address may have changed in between.
    part = cache / f"{hashlib.sha256(url.encode()).hexdigest()}.new"
    with locked(part.with_suffix(".lock")):
        part.unlink(missing_ok=True)
        try:
            download(url, what, part)
            _require_root(what, part, root)
            sha256 = sha256_of(part)
            part.replace(cache / sha256)
        finally:
            part.unlink(missing_ok=True)
    return LockedSource(engine=engine, version=version, address=address, sha256=sha256, root=root)


def _require_root(what: str, archive: Path, root: str) -> None:
    """Raises InputError unless a tar archive has entries below the folder `root`."""
    try:
        with tarfile.open(archive) as opened:
            if any(f"{member.name}/".startswith(f"{root.rstrip('/')}/") for member in opened):
                return
    except (tarfile.TarError, EOFError, zlib.error):
        raise InputError(f"{what}: not a tar archive", "check the URL") from None
    raise InputError(f"{what}: the archive has no folder {root}", "correct archive_root in the engine's file")


def source_url(engine: str, version: str, address: str) -> str:
    """The URL that an address in the lock stands for."""
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
