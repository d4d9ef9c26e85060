"""The presets of llama-server's router: a credential whose text is in the unit, so that a release has them with it."""

from __future__ import annotations

from rigup.plan import Plan
from rigup.systemd.quoting import credential

_NAME = "models.ini"
PRESETS = f"${{CREDENTIALS_DIRECTORY}}/{_NAME}"
"""Where the router finds them."""


def preset_lines(plan: Plan) -> tuple[str, ...]:
    """The unit's line with the presets of a swap group; () for any other plan."""
    text = "".join(each.swap.preset for each in plan.members if each.swap)
    return (f"SetCredential={credential(_NAME, text)}",) if text else ()
