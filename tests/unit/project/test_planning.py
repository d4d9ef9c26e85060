"""Plans that an apply may carry out."""

from __future__ import annotations

from rigup.project.planning import INSTALLABLE
from rigup.run.runner import load_provision


def test_every_build_that_can_be_installed_has_a_role_and_every_role_is_offered() -> None:
    load_provision()
    from roles.site import ENGINES

    assert set(ENGINES) == INSTALLABLE
