"""What the verbs that talk to hosts share: their arguments, and opening a run."""

from __future__ import annotations

import argparse
import gc
import getpass
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rigup.errors import InputError, RigupError

if TYPE_CHECKING:
    from rigup.fleet.contact import Contact
    from rigup.fleet.inventory import HostEntry, Project
    from rigup.fleet.kept_plans import KeptPlans
    from rigup.fleet.runner import Run
    from rigup.fleet.settings import Settings
    from rigup.plan import Plan

SUDO_PASSWORD_VARIABLE = "RIGUP_SUDO_PASSWORD"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """INVENTORY, --limit, --json and how to become root."""
    add_inventory(parser)
    add_limit(parser)
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    add_sudo_password(parser)


def add_inventory(parser: argparse.ArgumentParser) -> None:
    """INVENTORY, which may be left out."""
    parser.add_argument("inventory", nargs="?", metavar="INVENTORY", help="default: the only file in inventories/")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Groups and hosts of the inventory."""
    parser.add_argument("--limit", metavar="GROUP_OR_HOST", help="only these; several with commas, patterns allowed")


def add_sudo_password(parser: argparse.ArgumentParser) -> None:
    """How to become root."""
    parser.add_argument(
        "--ask-sudo-password",
        action="store_true",
        help=f"ask once for the password that sudo wants there (or set {SUDO_PASSWORD_VARIABLE})",
    )


def patch_for_many_hosts() -> None:
    """Lets one process talk to many hosts at once; must run before anything imports sockets for real."""
    from rigup.fleet import startup

    startup.patch_for_many_hosts()


class Refusals(RigupError):
    """Raised when plans are refused: hosts were greeted at most, and nothing was changed."""

    def __init__(self, plans: list[Plan]) -> None:
        findings = [(plan, finding) for plan in plans for finding in plan.refusals]
        lines = [f"{p.host}: {p.service.name}: {f.message} [{f.rule}]" for p, f in findings]
        hints = dict.fromkeys(f.hint for _, f in findings if f.hint)
        super().__init__("\n       ".join(lines), "; ".join([*hints, "rigup plan shows what fits instead"]))


def open_run(
    args: argparse.Namespace,
    kind: type[Run] | None = None,
    found_later: Callable[[], type[Run]] | None = None,
    service: str | None = None,
    services_answer: bool = False,
) -> tuple[Project, Run]:
    """Reads the fleet, plans it, and prepares the run. Raises what cannot be before anything is changed.

    Hosts are greeted meanwhile, which only reads.

    kind: of the run, where it is not the usual one. found_later: gives it once the hosts are being greeted, for a verb
    that is to be quick. service: the one that the run is about: others take no part where their plans are refused.
    services_answer: whether the run ends with an answer of every service, which may then be asked with the greeting.
    """
    gc.disable()  # what is imported is no garbage; `import_by_and_by` takes collecting up again
    from rigup.fleet.contact import Contact
    from rigup.fleet.inventory import load_project
    from rigup.fleet.kept_plans import KeptPlans
    from rigup.fleet.startup import import_by_and_by

    project = load_project(args.inventory, args.limit)
    password = sudo_password(args)
    contact = Contact(project, password, services_answer)
    contact.begin()
    try:
        kept = KeptPlans(project)
        import_by_and_by(planning=not kept.there)
        found = found_later() if found_later else kind
        return project, _planned(args, project, kept, found, password, contact, service)
    except BaseException:
        contact.leave()
        raise


def _planned(
    args: argparse.Namespace,
    project: Project,
    kept: KeptPlans,
    kind: type[Run] | None,
    password: str | None,
    contact: Contact,
    service: str | None,
) -> Run:
    from rigup.fleet.runner import Run
    from rigup.fleet.sets import check_whole_sets
    from rigup.plan import plans_by_host

    check_whole_sets(project)
    plans = kept.read()
    if plans is None:
        plans = _checked_plans(project, service)
        if service is None:
            kept.keep(plans)
    by_host = {host.name: () for host in project.hosts} | plans_by_host(plans)
    check_installable(plans)
    settings = {
        host.name: replace(
            _settings(args, host, by_host[host.name], project),
            remove=bool(getattr(args, "remove", False)),
        )
        for host in project.hosts
    }
    return (kind or Run)(project, by_host, settings, password, contact)


def _checked_plans(project: Project, service: str | None = None) -> tuple[Plan, ...]:
    """Plans that can be carried out, all of them, or of this service and what else is accepted.

    Raises Refusals, or InputError where something is not pinned.
    """
    from rigup.fleet.planning import plan_project
    from rigup.fleet.unlocked import check_locked
    from rigup.lock import load_lock

    plans = plan_project(project)
    if refused := [p for p in plans if p.verdict == "refused" and service in (None, p.service.name)]:
        raise Refusals(refused)
    plans = tuple(plan for plan in plans if plan.verdict == "ok")
    check_locked(plans, load_lock(project.lock_path))
    return plans


def _settings(args: argparse.Namespace, host: HostEntry, plans: tuple[Plan, ...], project: Project) -> Settings:
    """A host's settings; what the command line says goes before what its files say."""
    from rigup.fleet.settings import read_settings

    folder = getattr(args, "source", None)
    if folder is None:
        return read_settings(host.data, plans, project.root, host.origins)
    data = {**host.data, "wheelhouse": os.path.abspath(folder)}
    return read_settings(data, plans, project.root, {**host.origins, "wheelhouse": "--from"})


def check_installable(plans: tuple[Plan, ...]) -> None:
    """Refuses what can be planned but not installed: there is no role for the engine's build."""
    from rigup.fleet.runner import installable_builds

    for plan in plans:
        assert plan.build is not None
        kind = (plan.build.engine, plan.build.method)
        if kind not in installable_builds():
            known = ", ".join(f"{engine} from {method}" for engine, method in sorted(installable_builds()))
            raise RigupError(
                f"{plan.host}: {plan.service.name}: {kind[0]} as a {kind[1]} build can be planned, not installed yet",
                f"this version installs: {known}",
            )


def sudo_password(args: argparse.Namespace) -> str | None:
    """The password that sudo wants on the hosts: asked for, or what `taken_sudo_password` found."""
    if args.ask_sudo_password:
        try:
            return getpass.getpass("sudo password on the hosts: ")
        except EOFError:
            hint = f"set {SUDO_PASSWORD_VARIABLE} in its place"
            raise InputError("--ask-sudo-password asks, and nobody can answer here", hint) from None
    said: str | None = args.sudo_password
    return said


def taken_sudo_password() -> str | None:
    """The password in the environment, which it is taken out of: whatever is started here would inherit it."""
    return os.environ.pop(SUDO_PASSWORD_VARIABLE, None)
