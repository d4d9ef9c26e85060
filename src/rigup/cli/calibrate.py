"""`rigup plan --calibrate`: compares planned GPU memory with past starts and derives new constants from them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from rigup.catalogue.data_files import read_file
from rigup.catalogue.overheads import TABLE, MeasuredOverhead, overheads_toml
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.table import Column, Table
from rigup.errors import InputError
from rigup.planner.memory.calibration import Calibration, Comparison, calibrate, read_starts
from rigup.project.inventory import Project, load_project
from rigup.regular_files import replace_file
from rigup.run.audit_log import kept_here

FILE = "catalogue/overheads/measured.toml"
COLUMNS = ("weights", "kv_cache", "overhead", "total")
FIGURES = ("predicted_mib", "measured_mib", "error_mib", "error_percent", "worst_mib")


def run(args: argparse.Namespace) -> int:
    """Shows the calibration, saves it with --write; returns 1 if no constant can be derived."""
    project = load_project(args.inventory, args.limit)
    found = calibrate(read_starts(record for host in project.hosts for record in kept_here(host.name)))
    written = _write(project, found) if args.write else None
    if args.json:
        print_json({"schema": 1, "calibrations": [as_json(c) for c in found], "written": written})
    else:
        _show(found, written, args.write, Console(highlight=False))
    return 0 if any(calibration.wanted_mib is not None for calibration in found) else 1


def as_json(calibration: Calibration) -> dict[str, Any]:
    """One calibration as plain values."""
    from rigup.cli.output.json_documents.plans import CalibrationOfKind

    kind = dict(zip(("engine", "version", "gpu", "gpus", "parallel"), calibration.kind, strict=True))
    return CalibrationOfKind.of(vars(calibration) | kind | {"why_not": calibration.why_not or None})


def _show(found: Sequence[Calibration], written: str | None, write: bool, console: Console) -> None:
    if not found:
        words = "No start of a service on GPUs is on record on this machine; rigup apply records each one."
        console.print(words, soft_wrap=True)
        return
    figures = (Column(name.replace("_", " "), 7 - rank, narrowest=24) for rank, name in enumerate(COLUMNS))
    kind = (Column("engine"), Column("GPUs", narrowest=12, middle=True), Column("spread", 9), Column("starts", 8))
    table = Table((*kind, *figures, Column("constant")))
    for calibration in found:
        engine, version, gpu, gpus, parallel = calibration.kind
        sizes = ((name, size) for name, size in parallel.model_dump().items() if size > 1)
        spread = ", ".join(f"{name} {size}" for name, size in sizes) or ("layers" if gpus > 1 else "-")
        compared = (_text(getattr(calibration, name)) for name in COLUMNS)
        cells = (f"{engine} {version}", f"{gpus}x {gpu}", spread, str(calibration.starts), *compared)
        table.add(*cells, _constant(calibration))
    console.print(table, soft_wrap=True)
    for line in (*_notes(found), *_outcome(written, write)):
        console.print(line, soft_wrap=True, markup=False)


def _text(found: Comparison | None) -> str:
    """Mean predicted and measured MiB per GPU, and the error."""
    if found is None:
        return "unknown"
    return (
        f"{found.predicted_mib:,.0f} -> {found.measured_mib:,.0f} MiB "
        f"({found.error_mib:+,.0f}, {found.error_percent:+.1f} %; worst {found.worst_mib:+,.0f})"
    )


def _constant(calibration: Calibration) -> str:
    now = f"{calibration.runtime_mib:,} MiB"
    return f"{now} -> {calibration.wanted_mib:,} MiB" if calibration.wanted_mib is not None else now


def _notes(found: Sequence[Calibration]) -> Iterator[str]:
    for calibration in found:
        engine, version, gpu, gpus, _ = calibration.kind
        name = f"{engine} {version} on {gpus}x {gpu}"
        if calibration.why_not:
            yield f"{name}: not calibrated: {calibration.why_not}"
        for line in calibration.left_out:
            yield f"{name}: not counted: {line}"


def _outcome(written: str | None, write: bool) -> Iterator[str]:
    if written:
        yield f"Plans now use these constants: {written}"
    elif write:
        yield "Nothing was written."


def _write(project: Project, found: Sequence[Calibration]) -> str | None:
    """Saves the usable constants in the fleet's catalogue atomically, keeping those of other kinds.

    Returns the file's path relative to the fleet folder; None if there is nothing to write.
    """
    entries = [entry for calibration in found if (entry := calibration.entry)]
    if not entries:
        return None
    path = project.root / FILE
    kept = read_file(path, TABLE, MeasuredOverhead) if path.is_file() else ()
    others = [entry for entry in kept if entry.kind not in {new.kind for new in entries}]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, overheads_toml([*others, *entries]).encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "make the fleet folder writable") from None
    return FILE
