"""The start of `diff`, `status` and `report`: read and plan the fleet, connect to and probe every host."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rigup.cli.sessions import session as hosts

if TYPE_CHECKING:
    from rigup.run.inspection import Inspection


@contextmanager
def open_inspection(args: argparse.Namespace, then: Callable[[Inspection], None]) -> Iterator[Inspection]:
    """Opens an inspection, runs `then` under the same live view, and closes it at the end."""
    hosts.patch_for_many_hosts()
    _, opened = hosts.open_run(args, _inspection)
    from rigup.cli.output import progress as live
    from rigup.operations.primitives import progress

    with opened as found:
        with live.view() as view:
            watching = True
            progress.listen(lambda report: view.show(report) if watching else None)  # listeners cannot be removed
            found.connect_and_probe()
            then(found)
        watching = False
        yield found


def _inspection() -> type[Inspection]:
    from rigup.run.inspection import Inspection

    return Inspection
