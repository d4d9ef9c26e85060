"""`rigup status --html`: the page of an inspection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rigup.cli.page.collect import fleet_content
from rigup.cli.page.document import fleet_page
from rigup.report.inventory_secrets import inventory_secrets
from rigup.report.redaction import Redactor

if TYPE_CHECKING:
    from rigup.run.inspection import Inspection


def page_of(
    inspected: Inspection, rows: Sequence[dict[str, Any]], limit: str | None, gateways: Sequence[dict[str, Any]] = ()
) -> str:
    """The page without secrets: those of hosts, releases and the inventory are redacted."""
    content, secrets = fleet_content(inspected, rows, limit, gateways)
    project = inspected.context.project
    secrets += [secret for entry in project.hosts for secret in inventory_secrets(project.root, entry.data)]
    secrets.append(inspected.context.connections.sudo_password or "")
    return fleet_page(Redactor(secrets).value(content))
