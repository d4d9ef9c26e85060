"""`rigup fit`: lists offline every model that a rig can serve; or, with --model, the rigs that can serve one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.catalogue.model import Model
from rigup.cli.output import fit
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.typed_words import add_decimal, add_number
from rigup.cli.page.writing import check_page, write_html
from rigup.cli.sessions import session as hosts
from rigup.errors import InputError
from rigup.lock import Lock, load_lock
from rigup.plain_values import quoted
from rigup.planner.inputs.names import check_served
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.planner.inputs.validation import suggestion
from rigup.project.fit_table import FitFilter, fit_of, fits_of, in_order, least_to_buy, smallest_of
from rigup.project.inventory import INVENTORIES, Project, load_project
from rigup.regular_files import files_in
from rigup.rig import Rig
from rigup.service import Preference

Rigs = list[tuple[str, Rig]]

EPILOG = """\
examples:
  rigup fit                                   list what each rig of the only inventory can serve
  rigup fit "4x RTX 3090" --host-memory 128   list what this rig can serve, with 128 GiB of host memory
  rigup fit "1x RTX 5090" --min-context 100000 --sort speed
  rigup fit --model GLM-5.2                   list how many of each known GPU serve it
  rigup fit "4x RTX 3090" --html fit.html     also write the table as one page to pass around

exit codes: 0 something fits, 1 nothing fits, 2 usage error, 130 cancelled
"""

_MOST_GIB = 65_536


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds INVENTORY or RIG, and the options."""
    parser.add_argument(
        "rig",
        nargs="?",
        metavar="INVENTORY_OR_RIG",
        help='inventory file (default: the only file in inventories/), or GPUs: "4x RTX 3090", several with commas',
    )
    parser.add_argument("--model", metavar="NAME", help="show which rigs can serve this model instead")
    add_decimal(parser, "--host-memory", "assume this host memory for a rig named on the command line", metavar="GIB")
    parser.add_argument(
        "--sort", choices=get_args(Preference), help="sort by this first (default: quality, then speed)"
    )
    add_number(parser, "--min-context", "list only models with this many tokens of context", 0, 0)
    speed = "list only models with this many tokens/s, at the low end of the estimate"
    add_decimal(parser, "--min-speed", speed, 0.0)
    parser.add_argument(
        "--commercial", action="store_true", help="list only models whose license is known to allow commercial use"
    )
    parser.add_argument("--all", action="store_true", help="also list what does not fit, with the reason")
    hosts.add_limit(parser)
    parser.add_argument(
        "--html", metavar="FILE", help="also write the tables as one page to FILE (- for standard output)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Plans every model for every rig, or one model for many rigs; contacts no host."""
    names_rig = args.rig is not None and not _is_path(args.rig)
    _check_numbers(args, names_rig)
    if args.html is not None:
        check_page(args)
    project = _project(args, names_rig)
    catalogue, lock = load_catalogue(project.root), load_lock(project.lock_path)
    rigs = _rigs(args, names_rig, project, catalogue)
    wanted = FitFilter(args.min_context, args.min_speed, args.commercial)
    show = _show_rigs if args.model is None else _show_model
    return show(args, project, rigs, wanted, catalogue, lock)


def _show_rigs(
    args: argparse.Namespace, project: Project, rigs: Rigs, wanted: FitFilter, catalogue: Catalogue, lock: Lock
) -> int:
    order: Preference = args.sort or "quality"
    tables = [(name, rig, in_order(fits_of(rig, catalogue, lock, wanted.context), order)) for name, rig in rigs]
    if args.json:
        print_json(fit.rigs_as_json(tables, wanted, args.all))
    elif args.html != "-":
        fit.show_rigs(tables, wanted, Console(highlight=False), args.all)
    if args.html is not None:
        from rigup.cli.fit.page import rigs_page  # it imports what connects to hosts, and few runs write a page
        from rigup.cli.page.origin import origin_of

        write_html(args.html, rigs_page(origin_of(project, args.limit), tables, wanted))
    return 0 if any(wanted.accepts(entry) for _, _, fits in tables for entry in fits) else 1


def _show_model(
    args: argparse.Namespace, project: Project, rigs: Rigs, wanted: FitFilter, catalogue: Catalogue, lock: Lock
) -> int:
    model = _model(args.model, catalogue)
    named = [(name, fit_of(rig, model, catalogue, lock, wanted.context)) for name, rig in rigs]
    found = least_to_buy(smallest_of(model, wanted, catalogue, lock, args.host_memory))
    found = in_order(found, args.sort) if args.sort else found
    if args.json:
        print_json(fit.model_as_json(model, named, found, wanted))
    elif args.html != "-":
        fit.show_model(model, named, found, wanted, Console(highlight=False), args.all)
    if args.html is not None:
        from rigup.cli.fit.page import model_page  # as above
        from rigup.cli.page.origin import origin_of

        write_html(args.html, model_page(origin_of(project, args.limit), model, named, found, wanted))
    return 0 if any(wanted.accepts(entry) for entry in (*found, *(entry for _, entry in named))) else 1


def _is_path(text: str) -> bool:
    if text.endswith(".py") or "/" in text:
        return True
    try:
        return Path(text).exists()
    except OSError:  # longer than a name may be
        return False


def _check_numbers(args: argparse.Namespace, names_rig: bool) -> None:
    if args.min_speed < 0:
        raise InputError(f"--min-speed: {args.min_speed:g} is below 0", "omit it to list every speed")
    if args.host_memory is None:
        return
    if not 0 < args.host_memory <= _MOST_GIB:
        raise InputError(
            f"--host-memory: {args.host_memory:g} is not between 0 and {_MOST_GIB:,} GiB",
            "omit it to keep every weight in GPU memory",
        )
    if not names_rig and args.model is None:
        raise InputError(
            "--host-memory: the rigs of an inventory have their own",
            'set rig.host_memory_gib in group_data/, or name a rig: rigup fit "4x RTX 3090"',
        )


def _project(args: argparse.Namespace, names_rig: bool) -> Project:
    """The inventory's fleet; without an inventory, that of the current folder, with no hosts."""
    if names_rig or (args.rig is None and args.model is not None):
        if args.limit is not None:
            raise InputError("--limit: selects from an inventory, and none is named", "name an inventory, or omit it")
        return Project(Path.cwd(), Path.cwd(), ())
    if args.rig is None and len(there := files_in(Path(INVENTORIES), ".py")) != 1:
        listed = ", ".join(str(path) for path in there)
        found = f"more than one inventory ({listed})" if there else "no inventory found"
        first = "name one" if there else "describe the first host: rigup init USER@HOST"
        raise InputError(f"{INVENTORIES}/: {found}", f'{first}, or name a rig: rigup fit "4x RTX 3090"')
    return load_project(args.rig, args.limit)


def _rigs(args: argparse.Namespace, names_rig: bool, project: Project, catalogue: Catalogue) -> Rigs:
    """Each rig once, with the groups that have it; "" for the one that is named here."""
    if names_rig:
        names = [word.strip() for word in args.rig.split(",")]
        gpus = names[0] if len(names) == 1 else names
        said = {"gpus": gpus} | ({} if args.host_memory is None else {"host_memory_gib": args.host_memory})
        return [("", read_rig(said, "INVENTORY_OR_RIG", catalogue))]
    groups: dict[str, tuple[list[str], Rig]] = {}
    for host in project.hosts:
        rig = read_rig(host.data["rig"], host.data_path, catalogue)
        names, _ = groups.setdefault(repr(rig), ([], rig))
        if host.group not in names:
            names.append(host.group)
    return [(", ".join(names), rig) for names, rig in groups.values()]


def _model(name: str, catalogue: Catalogue) -> Model:
    found = {known.lower(): model for known, model in catalogue.models_by_name.items()}.get(name.lower())
    if found is None:
        served = (model.name for model in catalogue.served)
        raise InputError(f"--model: unknown model {quoted(name)}", suggestion(name, served))
    check_served(found, "--model")
    return found
