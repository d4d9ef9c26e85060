"""`rigup model`: reads a checkpoint's own files and writes its model and checkpoint into the fleet's catalogue."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.describe import Described, describe
from rigup.checkpoints.entry_text import plain_values
from rigup.checkpoints.repository import (
    REPO,
    Repository,
    hub_repository,
    local_repository,
    ollama_repository,
    repo_and_quant,
)
from rigup.cli.output.lines import print_json, tell
from rigup.errors import InputError
from rigup.lockfile.catalogue_files import catalogue_edits, write_entries
from rigup.plain_values import quoted
from rigup.project.inventory_edit import FileEdit
from rigup.project.settings import hub_address, ollama_address, read_secret
from rigup.regular_files import user_path
from rigup.service import location_of
from rigup.settings import HUB, OLLAMA
from rigup.sources.gguf_files import gguf_quants
from rigup.sources.hub import Hub
from rigup.sources.ollama import OllamaRegistry
from rigup.units import bytes_text

EPILOG = """\
examples:
  rigup model add Qwen/Qwen3-235B-A22B-GPTQ-Int4
  rigup model add unsloth/gpt-oss-120b-GGUF:Q8_0      one quantisation of several
  rigup model add ~/models/my-finetune --repo me/my-finetune
  rigup model add /models/x-Q4_K_M.gguf --model Qwen3-4B
  rigup model add org/name --revision v1.1 --json
  rigup model add ollama:qwen3:8b                     a name in Ollama's registry

`add` reads config.json and the headers of the weight files, a few MB in all; no weights are downloaded. The hub is
HF_ENDPOINT, Ollama's registry is OLLAMA_REGISTRY, or the public ones. Then `rigup plan` knows the model, and
`rigup lock` pins its files.

exit codes: 0 written or unchanged, 2 usage error or a checkpoint that cannot be read, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommands of `rigup model`."""
    verbs = parser.add_subparsers(dest="model_verb", metavar="add", required=True)
    add = verbs.add_parser(
        "add",
        help="write the model and the checkpoint of a repository, folder or GGUF file into catalogue/",
        epilog=EPILOG,
    )
    add.add_argument("checkpoint", metavar="REPO[:QUANT]|FOLDER|FILE.gguf|ollama:NAME", help="read this checkpoint")
    add.add_argument("--model", metavar="NAME", help="name the model (default: from the repository's name)")
    add.add_argument("--repo", metavar="ORG/NAME", help="name the repository that a folder or file is from")
    add.add_argument("--revision", metavar="REV", default="main", help="read this branch, tag or commit (default main)")
    add.add_argument("--fleet", metavar="DIR", default=".", help="write to catalogue/ in DIR (default .)")
    add.add_argument("--hub-token-file", metavar="FILE", help="send the token in FILE to the hub")
    add.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Reads the checkpoint and writes what is new."""
    root = user_path(args.fleet, "--fleet")
    if not root.is_dir():
        raise InputError(f"--fleet: {args.fleet}: not a folder", "name the folder of your fleet")
    catalogue = load_catalogue(root)
    _check_name(args.model)
    repository, quant = _repository(args)
    found = describe(repository, quant, catalogue.models_by_name, args.model)
    changes = catalogue_edits(root, found, catalogue.checkpoints)
    write_entries(root, changes)
    _show(args, root, found, changes)
    return 0


_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]{0,199}")


def _check_name(name: str | None) -> None:
    if name is not None and (not name.isprintable() or not 0 < len(name) <= 120 or name.strip() != name):
        raise InputError("--model: not a name", "write a short name in printable characters")


def _repository(args: argparse.Namespace) -> tuple[Repository, str | None]:
    """What is read, and which quantisation of it; a path that exists goes before a repository of that name."""
    if args.repo is not None and not REPO.fullmatch(args.repo):
        raise InputError(f"--repo: {args.repo[:60]!r} is not a repository", "write org/name")
    path = user_path(args.checkpoint, "checkpoint")
    if args.checkpoint.startswith("ollama:"):
        return _from_ollama(args.checkpoint)
    looks_local = args.checkpoint.startswith((".", "/", "~")) or args.checkpoint.endswith(".gguf")
    if looks_local or path.is_dir():
        return local_repository(path, args.repo), _quant_of(path)
    repo, quant = repo_and_quant(args.checkpoint)
    if not _REVISION.fullmatch(args.revision) or ".." in args.revision or "//" in args.revision:
        raise InputError(
            f"--revision: {quoted(args.revision)} is not a branch, tag or commit", "write its name on the hub: main"
        )
    token = read_secret(Path.cwd(), "--hub-token-file", args.hub_token_file) if args.hub_token_file else None
    address = hub_address("HF_ENDPOINT", os.environ.get("HF_ENDPOINT") or HUB)
    hub = Hub(address, token)
    tell(f"querying {hub.name} for {repo}")
    return hub_repository(hub, repo, args.revision), quant


def _from_ollama(name: str) -> tuple[Repository, str | None]:
    try:
        location = location_of(name)
    except ValueError as error:
        raise InputError(f"checkpoint: {name[:200]!a} is {error}", "correct the name") from None
    registry = OllamaRegistry(ollama_address("OLLAMA_REGISTRY", os.environ.get("OLLAMA_REGISTRY") or OLLAMA))
    tell(f"querying {registry.name} for {location}")
    return ollama_repository(registry, location)[0], None


def _quant_of(path: Path) -> str | None:
    """The quantisation that the name of a GGUF file says."""
    return gguf_quants([path.name])[0] if path.name.endswith(".gguf") else None


def as_json(root: Path, found: Described, changes: list[FileEdit]) -> dict[str, Any]:
    """The result for scripts. Within a schema, keys are only added."""
    return {
        "schema": 1,
        "model": plain_values(found.model),
        "model_known": found.known,
        "checkpoint": plain_values(found.checkpoint),
        "bytes_read": found.bytes_read,
        "files": [{"path": str(change.path.relative_to(root)), "action": change.action} for change in changes],
    }


def _show(args: argparse.Namespace, root: Path, found: Described, changes: list[FileEdit]) -> None:
    if args.json:
        print_json(as_json(root, found, changes))
        return
    model, entry = found.model, found.checkpoint
    print(f"{model.name}: {_billions(model.parameters)} parameters, {_billions(model.active_parameters)} active")
    print(f"  {model.attention_shape}; context {model.context:,}")
    print(f"{entry.label}: {bytes_text(entry.bytes)} in {entry.shards} file{'' if entry.shards == 1 else 's'}")
    print(f"  read {bytes_text(found.bytes_read)} of headers")
    for note in entry.notes:
        print(f"  note: {note}")
    for change in changes:
        print(f"{change.path}: {change.action}")
    if not changes:
        print("catalogue/: nothing to change")


def _billions(count: int) -> str:
    return f"{count / 1e9:,.1f} billion"
