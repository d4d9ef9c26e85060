"""The origin of a page: the rigup version, the time, the lock and the commit."""

from __future__ import annotations

import hashlib
import time

from rigup import __version__
from rigup.cli.page.content import PageOrigin
from rigup.project.inventory import Project
from rigup.run.audit_log import Recorder
from rigup.units import time_text


def origin_of(project: Project, limit: str | None) -> PageOrigin:
    """The origin of a page about hosts of this project. limit: the value of --limit."""
    lock = project.lock_path
    return PageOrigin(
        project.inventory.stem,
        time_text(time.time()),
        __version__,
        hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else "",
        Recorder(project, "", "status").commit,
        limit or "",
    )
