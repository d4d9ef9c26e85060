"""What `rigup up` says at the end: where the service is, how to ask it, and what was written where."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from typing import Any

from rigup.cli.apply import Applied
from rigup.cli.output.plan_json import plan_as_json
from rigup.cli.up.fleet_folder import Prepared
from rigup.layout import CONFIGURATION, api_key_file, unit_name
from rigup.operations.service.health import QUESTION
from rigup.plan import Plan
from rigup.project.inventory import HostEntry
from rigup.systemd.api_key import is_loopback, wants_key

WRITTEN_TO = ("/opt/rigup", "/var/lib/rigup", CONFIGURATION)


def base_url(plan: Plan) -> str:
    """Where clients of the OpenAI API find a service; at loopback only through a tunnel."""
    listen = plan.service.listen
    everywhere = listen in ("0.0.0.0", "::")  # noqa: S104  what the service listens on
    name = plan.host.rpartition("@")[2] if everywhere else listen
    return f"http://{f'[{name}]' if ':' in name else name}:{plan.service.port}/v1"


def curl(host: HostEntry, plan: Plan) -> str:
    """A command that asks what the health check has asked. The shell reads the key, if it wants one, from its file."""
    body = {"model": plan.served_name, "messages": [{"role": "user", "content": QUESTION}]}
    words = ["curl", "-s", f"{base_url(plan)}/chat/completions", "-H", "Content-Type: application/json"]
    key = f' -H "Authorization: Bearer $({key_command(host, plan)})"' if wants_key(plan.service) else ""
    return f"{shlex.join(words)}{key} -d {shlex.quote(json.dumps(body))}"


def key_command(host: HostEntry, plan: Plan) -> str:
    """A command that prints the API key: from the user's own file, or from the host's."""
    if plan.service.api_key_file:
        return shlex.join(["cat", plan.service.api_key_file])
    return shlex.join([*_ssh(host), host.name, "sudo", "cat", api_key_file(plan.service.name)])


def tunnel(host: HostEntry, plan: Plan) -> str | None:
    """A command that brings the port of a service at loopback to this machine; None where it needs none."""
    if not is_loopback(plan.service.listen):
        return None
    port = plan.service.port
    return shlex.join([*_ssh(host), "-N", "-L", f"{port}:{plan.service.listen}:{port}", host.name])


def _ssh(host: HostEntry) -> list[str]:
    """ssh with what the inventory says of the connection."""
    options = {"ssh_config_file": "-F", "ssh_port": "-p", "ssh_user": "-l", "ssh_key": "-i"}
    given = [(option, host.data.get(key)) for key, option in options.items()]
    return ["ssh", *(word for option, value in given if value for word in (option, str(value)))]


def last_lines(args: argparse.Namespace, ready: Prepared, done: Applied) -> Iterator[str]:
    """The last lines of the command, for people."""
    for plan in _served(ready) if done.exit_code == 0 else ():
        words = tunnel(ready.host, plan)
        yield f"{plan.service.name}: {base_url(plan)}" + (f", through: {words}" if words else "")
        yield f"  {curl(ready.host, plan)}"
    if done.exit_code == 0:
        yield "written here:"
        yield from (f"  {path}" for path in ready.files)
        yield f"written on {args.host}:"
        units = [f"/etc/systemd/system/{unit_name(plan.service.name)}" for plan in _served(ready)]
        yield f"  {', '.join((*WRITTEN_TO, *units))}"
    verb = "status" if done.exit_code == 0 else "apply"
    yield f"go on with: {shlex.join(['rigup', verb, str(ready.inventory)])}"


def as_json(args: argparse.Namespace, ready: Prepared, done: Applied) -> dict[str, Any]:
    """All of it for scripts: what was written, the plans, the results as `rigup apply --json`, and the addresses."""
    return {
        "schema": 1,
        "host": args.host,
        "group": ready.host.group,
        "inventory": str(ready.inventory),
        "files": [{"path": str(edit.path), "action": edit.action} for edit in ready.edits],
        "lock": {"path": str(ready.lock_path), "action": ready.lock},
        "plans": [plan_as_json(plan) for plan in ready.plans],
        "hosts": (done.document or {}).get("hosts", []),
        "services": [
            {
                "service": plan.service.name,
                "url": base_url(plan),
                "tunnel": tunnel(ready.host, plan),
                "curl": curl(ready.host, plan),
            }
            for plan in (_served(ready) if done.exit_code == 0 else ())
        ],
    }


def _served(ready: Prepared) -> list[Plan]:
    """The plans whose host answers requests, which of several hosts is the head."""
    return [plan for plan in ready.plans if not plan.rank]
