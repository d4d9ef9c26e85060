"""`rigup key`: shows the API keys of services, or replaces one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rigup.cli.output.lines import Lines, lines, print_json, tell
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned

if TYPE_CHECKING:
    from rigup.run.services.keys import KeyRun

EPILOG = """\
examples:
  rigup key show chat                                       print the key, and nothing else
  export OPENAI_API_KEY=$(rigup key show chat --limit gpu1.lan)
  rigup key show --json                                     print the keys of all services on all hosts
  rigup key rotate chat                                     give the service a new key; asks first

If rigup created the key, `rotate` replaces it on each host and restarts the service. If the key is in a file of yours
(api_key_file), `rotate` replaces it there; then run rigup apply to install it on hosts and gateways.

exit codes: 0 done, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `show` and `rotate`."""
    verbs = parser.add_subparsers(dest="key_verb", metavar="show|rotate", required=True)
    show = verbs.add_parser("show", help="print the API keys that the hosts have", epilog=EPILOG)
    show.add_argument("service", nargs="*", metavar="SERVICE", help="select these services (default: all)")
    unplanned.add_arguments(show)
    rotate = verbs.add_parser("rotate", help="replace the API key of a service", epilog=EPILOG)
    rotate.add_argument("service", metavar="SERVICE", help="give this service a new key")
    rotate.add_argument("--yes", "-y", action="store_true", help="replace the key without confirmation")
    unplanned.add_arguments(rotate)


def run(args: argparse.Namespace) -> int:
    """Prints keys, or replaces one."""
    return _show(args) if args.key_verb == "show" else _rotate(args)


def _show(args: argparse.Namespace) -> int:
    opened = unplanned.open_unplanned(
        args, _key_run, check=lambda project: unplanned.check_service_names(project, args.service)
    )
    from rigup.cli.output.results import show_failed
    from rigup.run.result import exit_code

    with opened as run:
        run.connect(take_lease=False)
        run.read(tuple(args.service))
    results = list(run.results.values())
    show_failed(results)
    keys = sorted((host, service, key) for (host, service), key in run.keys.items() if key)
    if args.json:
        rows = [{"host": host, "service": service, "key": key} for host, service, key in keys]
        print_json({"schema": 1, "keys": rows})
    elif len({key for _, _, key in keys}) == 1:
        print(keys[0][2])
    else:
        for row in keys:
            print(*row)
    if not keys and not args.json and not any(result.errors for result in results):
        tell("no service here needs an API key")
    for result in results:
        result.state = "unchanged" if not result.errors else result.state
    return exit_code(results)


def _rotate(args: argparse.Namespace) -> int:
    hosts.patch_for_many_hosts()
    from rigup.cli.apply import agreed
    from rigup.cli.output import results as summary
    from rigup.project.inventory import load_project

    out = lines(stderr=args.json)
    project = load_project(args.inventory, args.limit)
    unplanned.check_service_names(project, [args.service])
    question = f"Clients of {args.service} will need the new key. Continue?"
    if not args.yes and not agreed(out, "key rotate", question):
        return 1
    from rigup.run.services.keys import key_file_of, write_new_key

    if name := key_file_of(project, args.service):
        write_new_key(project.root, name)
        if args.json:
            print_json(summary.as_json([]) | {"file": name})
        else:
            out.say(f"{name}: new key; to install it on hosts and gateways: rigup apply")
        return 0
    return _rotate_on_hosts(args, out)


def _rotate_on_hosts(args: argparse.Namespace, out: Lines) -> int:
    opened = unplanned.open_unplanned(args, _key_run)
    from rigup.cli.output import results as summary
    from rigup.run.result import exit_code

    with hosts.watched(opened) as (run, view), view:
        run.connect(take_lease=True)
        run.read((args.service,))
        run.rotate(args.service)
    results = list(run.results.values())
    if args.json:
        print_json(summary.as_json(results) | {"file": None})
        return exit_code(results)
    for result in results:
        if result.changes:
            out.say(f"{result.host} {args.service}: new key; to see it: rigup key show {args.service}")
    summary.show_failed(results)
    return exit_code(results)


def _key_run() -> type[KeyRun]:
    from rigup.run.services.keys import KeyRun

    return KeyRun
