"""How `diff`, `status` and `report` begin: the fleet read and planned, every host connected to and probed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from rigup.cli import hosts

if TYPE_CHECKING:
    from rigup.cli.live import View
    from rigup.fleet.examination import Examination
    from rigup.operations.progress import Progress


@contextmanager
def examination(
    args: argparse.Namespace, then: Callable[[Examination], None], services_answer: bool = False
) -> Iterator[Examination]:
    """An examination that has looked, and done `then` under the same live view; closed in the end.

    services_answer: as for `hosts.open_run`.
    """
    hosts.patch_for_many_hosts()
    _, opened = hosts.open_run(args, found_later=_examination, services_answer=services_answer)
    from rigup.cli import live
    from rigup.operations import progress

    with opened as run:
        found = cast("Examination", run)
        with live.view() as view:
            shown = _While(view)
            progress.listen(shown)
            found.look()
            then(found)
        shown.view = None
        yield found


def _examination() -> type[Examination]:
    from rigup.fleet.examination import Examination

    return Examination


class _While:
    """Shows reports for as long as there is a view; a listener itself stays for good."""

    def __init__(self, view: View) -> None:
        self.view: View | None = view

    def __call__(self, said: Progress) -> None:
        if self.view is not None:
            self.view.show(said)
