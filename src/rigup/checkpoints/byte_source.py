"""A file to read parts of: on this machine, or on a hub by requests for ranges."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rigup.errors import InputError
from rigup.printable import one_line
from rigup.regular_files import MAY_READ
from rigup.sources.http_retry import LARGEST_PART
from rigup.sources.hub import Hub, HubFile


@dataclass(frozen=True)
class ByteSource:
    """A file of `size` bytes. name: what messages call it. hint: what to do where it is damaged.

    `fetch` gives exactly `count` bytes from `start`, or raises a RigupError.
    """

    name: str
    size: int
    hint: str
    fetch: Callable[[int, int], bytes]

    def read(self, start: int, count: int) -> bytes:
        """`count` bytes from `start`, fewer where the file ends before. Raises RigupError where it cannot be read."""
        end = min(start + count, self.size)
        if end <= start:
            return b""
        steps = range(start, end, LARGEST_PART)
        return b"".join(self.fetch(step, min(LARGEST_PART, end - step)) for step in steps)

    def damaged(self, what: str) -> InputError:
        """The error for a content that cannot be right."""
        return InputError(f"{self.name}: {what}", self.hint)


def local_file(path: Path) -> ByteSource:
    """A regular file on this machine. Raises InputError where it is none or cannot be read."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'not a path'}", MAY_READ) from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file", MAY_READ)
    size = status.st_size

    def fetch(start: int, count: int) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                content = os.pread(descriptor, count, start)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}", MAY_READ) from None
        if len(content) < count:
            raise InputError(f"{path}: the file changed while it was read", "run the same command again")
        return content

    return ByteSource(str(path), size, "copy or download the file again", fetch)


def hub_file(hub: Hub, repo: str, commit: str, file: HubFile) -> ByteSource:
    """A file of a repository at a commit."""
    return ByteSource(
        one_line(f"{repo}: {file.path}"),
        file.size,
        "choose another revision: this one is damaged",
        lambda start, count: hub.part(repo, commit, file, start, count),
    )
