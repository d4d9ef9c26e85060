"""The origin of a page: the rigup version, the time, the lock and the commit."""

from __future__ import annotations

import time

from rigup import __version__
from rigup.cli.page.content import PageOrigin
from rigup.project.inventory import Project
from rigup.run.audit_log import Recorder
from rigup.units import time_text


def origin_of(project: Project, limit: str | None) -> PageOrigin:
    """The origin of a page about hosts of this project. limit: the value of --limit."""
    return PageOrigin(
        project.inventory.stem,
        time_text(time.time()),
        __version__,
        project.lock_digest,
        Recorder(project, "", "status").commit,
        limit or "",
    )
