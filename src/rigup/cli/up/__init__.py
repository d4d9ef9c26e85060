"""`rigup up`: from a host and a model to an answer in one command, through the verbs of every day."""

from __future__ import annotations

import argparse

from rigup.cli import apply
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.plan import show
from rigup.cli.output.usage import Parser
from rigup.cli.sessions import new_host
from rigup.cli.sessions.confirmation import add_yes
from rigup.cli.up import ending
from rigup.cli.up.fleet_folder import Prepared, prepared
from rigup.project.ssh_settings import check_host_name
from rigup.regular_files import user_path

EPILOG = """\
examples:
  rigup up ada@gpu1.lan MiniMax-M2.5          describe the host, lock, show the plan and the changes, confirm, apply
  rigup up ada@gpu1.lan                       show what the host can serve, and choose
  rigup up gpu2.lan Qwen/Qwen3-8B --yes       serve a repository of the hub, without confirmation
  rigup up gpu3.lan gpt-oss-120b --gpus "4x RTX 3090"
  rigup up ada@gpu1.lan MiniMax-M2.5 --name chat2 --fleet ~/fleet

It writes an ordinary fleet folder: inventories/, group_data/ and rigup.lock. Go on with rigup plan, rigup apply and
rigup status. The same command again changes nothing.

exit codes: 0 the service has answered, 1 refused, failed, or declined, 2 usage error or host not reachable,
130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds USER@HOST, MODEL and the options."""
    new_host.add_arguments(parser)
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="model of the catalogue, repository of the hub, or path on the host (default: choose from what fits)",
    )
    parser.add_argument("--name", metavar="SERVICE", help="name the service (default chat)")
    add_yes(parser, "make the changes")
    parser.add_argument("--reboot", action="store_true", help="with --yes: reboot the host where a change needs it")
    new_host.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print files, plan, results and address as JSON")


def run(args: argparse.Namespace) -> int:
    """Describes the host, locks, shows plan and changes, asks, applies, and says where the service is."""
    check_host_name(args.host, "rigup up")
    root = user_path(args.fleet, "--fleet")
    ready = prepared(args, root)
    if not args.json:
        _show(ready)
    done = apply.applied(_of_apply(args, ready))
    _show_end(args, ready, done)
    return done.exit_code


def _of_apply(args: argparse.Namespace, ready: Prepared) -> argparse.Namespace:
    """The arguments of the `rigup apply` that does the same."""
    parser = Parser(prog="rigup apply")
    apply.add_arguments(parser)
    given = parser.parse_args([str(ready.inventory), "--limit", args.host])
    for option in ("verb", "yes", "reboot", "json", "sudo_password"):
        setattr(given, option, getattr(args, option))
    return given


def _show(ready: Prepared) -> None:
    console = Console(highlight=False)
    for line in ready.files:
        console.print(line, soft_wrap=True, markup=False)
    console.print()
    show(ready.plans, console)
    console.print()


def _show_end(args: argparse.Namespace, ready: Prepared, done: apply.Applied) -> None:
    if args.json:
        print_json(ending.as_json(args, ready, done))
        return
    print("\n".join(("", *ending.last_lines(args, ready, done))))
