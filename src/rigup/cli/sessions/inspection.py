"""The start of `diff`, `status` and `report`: read and plan the fleet, connect to and probe every host."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from rigup.cli.sessions import session as hosts

if TYPE_CHECKING:
    from rigup.cli.output.progress import ProgressView
    from rigup.operations.primitives.progress import Progress
    from rigup.run.inspection import Inspection


@contextmanager
def open_inspection(args: argparse.Namespace, then: Callable[[Inspection], None]) -> Iterator[Inspection]:
    """Opens an inspection, runs `then` under the same live view, and closes it at the end."""
    hosts.patch_for_many_hosts()
    _, opened = hosts.open_run(args, lazy_run_class=_inspection)
    from rigup.cli.output import progress as live
    from rigup.operations.primitives import progress

    with opened as run:
        found = cast("Inspection", run)
        with live.view() as view:
            shown = _OptionalView(view)
            progress.listen(shown)
            found.connect_and_probe()
            then(found)
        shown.view = None
        yield found


def _inspection() -> type[Inspection]:
    from rigup.run.inspection import Inspection

    return Inspection


class _OptionalView:
    """Forwards reports while there is a view; listeners cannot be removed."""

    def __init__(self, view: ProgressView) -> None:
        self.view: ProgressView | None = view

    def __call__(self, report: Progress) -> None:
        if self.view is not None:
            self.view.show(report)
