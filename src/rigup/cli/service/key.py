"""`rigup key`: shows the API keys of services, or replaces one."""

from __future__ import annotations

import argparse

from rigup.cli.output import results as summary
from rigup.cli.output.lines import Lines, lines, print_json, tell
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.project.inventory import Project
from rigup.run.result import exit_code
from rigup.run.services.keys import KeyRun, key_file_of, write_new_key

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
    add_yes(rotate, "replace the key")
    unplanned.add_arguments(rotate)


def run(args: argparse.Namespace) -> int:
    """Prints keys, or replaces one."""
    return _show(args) if args.key_verb == "show" else _rotate(args)


def _show(args: argparse.Namespace) -> int:
    project = unplanned.project_with(args, args.service)
    with unplanned.open_unplanned(args, project, KeyRun) as run:
        run.connect(take_lease=False)
        run.read(tuple(args.service))
    results = unplanned.results_of(run)
    summary.show_failed(results)
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
    return exit_code(results)


def _rotate(args: argparse.Namespace) -> int:
    out = lines(stderr=args.json)
    project = unplanned.project_with(args, [args.service])
    question = f"Clients of {args.service} will need the new key. Continue?"
    if not agreed(args, out, question, "key rotate"):
        return 1
    if name := key_file_of(project, args.service):
        write_new_key(project.root, name)
        if args.json:
            print_json(summary.as_json([]) | {"file": name})
        else:
            out.say(f"{name}: new key; to install it on hosts and gateways: rigup apply")
        return 0
    return _rotate_on_hosts(args, project, out)


def _rotate_on_hosts(args: argparse.Namespace, project: Project, out: Lines) -> int:
    with hosts.watched(unplanned.open_unplanned(args, project, KeyRun)) as (run, view), view:
        run.connect(take_lease=True)
        run.read((args.service,))
        run.rotate(args.service)
    results = unplanned.results_of(run)
    if args.json:
        print_json(summary.as_json(results) | {"file": None})
        return exit_code(results)
    for result in results:
        if result.changes:
            out.say(f"{result.host} {args.service}: new key; to see it: rigup key show {args.service}")
    summary.show_failed(results)
    return exit_code(results)
