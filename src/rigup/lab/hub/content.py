"""The content of the hub stand-in: folders ROOT/ORGANISATION/NAME, each a repository with one revision, main."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

BLOCK = 2**20
SPARSE = 2**26
"""Bytes from which on a file that is mostly holes counts as one that stands for a larger one."""


@dataclass(frozen=True)
class ServedFile:
    """One file of a repository. oid: the git blob id. lfs: whether it is in separate storage and served by the CDN."""

    path: str
    location: Path
    size: int
    sha256: str
    oid: str
    lfs: bool

    @property
    def etag(self) -> str:
        """The hub's identifier of the content: sha256 for a file in separate storage, otherwise the git blob id."""
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class ServedRepository:
    """One repository in its current state; `commit` is derived from its content."""

    name: str
    commit: str
    files: dict[str, ServedFile]


def commit_id(files: dict[str, str]) -> str:
    """The revision of a repository with this content (path -> sha256): equal content, equal revision."""
    listing = "".join(f"{path}\0{files[path]}\n" for path in sorted(files))
    return hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()


class Content:
    """Reads the root folder at every request, and hashes a file once per size and mtime.

    commits: revision by repository name, where it must differ from the content's own.
    """

    def __init__(self, root: Path, lfs_minimum: int, commits: dict[str, str]) -> None:
        self.root = root
        self.lfs_minimum = lfs_minimum
        self.commits = commits
        self._digests: dict[tuple[Path, int, int], tuple[str, str]] = {}

    def repository(self, name: str) -> ServedRepository | None:
        """The repository ORGANISATION/NAME, or None."""
        folder = self.root / name
        if name.count("/") != 1 or ".." in name or not folder.is_dir():
            return None
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {str(path.relative_to(folder)): self._file(folder, path) for path in paths}
        own = commit_id({path: file.sha256 for path, file in files.items()})
        return ServedRepository(name, self.commits.get(name, own), files)

    def stored_apart(self, sha256: str) -> ServedFile | None:
        """The file that the CDN serves under this sha256, or None."""
        names = (f"{path.parent.name}/{path.name}" for path in sorted(self.root.glob("*/*")) if path.is_dir())
        repositories = (self.repository(name) for name in names)
        files = (file for repository in repositories if repository for file in repository.files.values())
        return next((file for file in files if file.lfs and file.sha256 == sha256), None)

    def _file(self, folder: Path, path: Path) -> ServedFile:
        status = path.stat()
        key = (path, status.st_size, status.st_mtime_ns)
        if key not in self._digests:
            sparse = status.st_size >= SPARSE and status.st_blocks * 512 < status.st_size // 2
            self._digests[key] = _made_up(path) if sparse else _digests(path, status.st_size)
        sha256, oid = self._digests[key]
        lfs = status.st_size >= self.lfs_minimum
        return ServedFile(str(path.relative_to(folder)), path, status.st_size, sha256, oid, lfs)


def _made_up(path: Path) -> tuple[str, str]:
    """Names for the content of a sparse file, which nobody downloads whole: hashing a terabyte of holes takes hours."""
    with path.open("rb") as file:
        start = b"%s %d " % (path.name.encode(), path.stat().st_size) + file.read(BLOCK)
    return hashlib.sha256(start).hexdigest(), hashlib.sha1(start, usedforsecurity=False).hexdigest()


def _digests(path: Path, size: int) -> tuple[str, str]:
    """The sha256 and the git blob id of a file."""
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            sha256.update(block)
            blob.update(block)
    return sha256.hexdigest(), blob.hexdigest()
