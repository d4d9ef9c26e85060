"""What a maker says besides the shapes: advice on sampling, licence, bases, whether there is a chat template."""

from __future__ import annotations

import re

from rigup.checkpoints.config import read_config
from rigup.checkpoints.facts import Extras
from rigup.checkpoints.repository import REPO, Repository

GENERATION = "generation_config.json"
CARD = "README.md"
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
LARGEST_CARD = 2**20
LARGEST_JSON = 2**22
FRONT = re.compile(r"\A---\s*\n(.{0,20000}?)\n---", re.DOTALL)
LICENSE = re.compile(r"^license(?:_name)?:[ \t]*['\"]?([A-Za-z0-9][\w.+ -]{0,60})", re.MULTILINE)
# One base in the line, or several in it or below it.
BASES = re.compile(r"^base_model:[ \t]*(.*(?:\n[ \t]*-[ \t]+.*){0,20})", re.MULTILINE)
TEMPLATES = ("chat_template.jinja", "chat_template.json")


def read_extras(repository: Repository) -> Extras:
    """Sampling, licence and bases where they are said, each with its source.

    Raises InputError for a file that is damaged.
    """
    sampling: dict[str, float] = {}
    sources: dict[str, str] = {}
    content = repository.small(GENERATION, LARGEST_JSON)
    if content is not None:
        said = read_config(content, f"{repository.where}: {GENERATION}").data
        sampling = {key: said[key] for key in SAMPLING if _is_sampling(said.get(key))}
        if sampling:
            sources["sampling"] = f"{repository.label}: {GENERATION}"
    front, card = _front(repository), f"{repository.label}: {CARD}"
    license_name = _license(front)
    if license_name:
        sources["license"] = card
    return Extras(sampling, license_name, sources, _notes(repository), _bases(front), card)


def _is_sampling(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1000


def _front(repository: Repository) -> str:
    """The front matter of the model card, "" if there is none."""
    card = repository.optional(CARD, LARGEST_CARD) or b""
    front = FRONT.match(card.decode(errors="replace").replace("\r\n", "\n"))
    return front[1] if front else ""


def _license(front: str) -> str:
    """The licence of the model card; a name of the maker's own goes before "other"."""
    names = LICENSE.findall(front)
    return next((name.strip() for name in reversed(names) if name.strip() != "other"), "")


def _bases(front: str) -> tuple[str, ...]:
    """The repositories that a model card names as what the model was made from."""
    said = BASES.search(front)
    words = re.split(r"[\s,\[\]'\"]+", said[1]) if said else []
    return tuple(word for word in words if len(word) < 120 and REPO.fullmatch(word))


def _notes(repository: Repository) -> tuple[str, ...]:
    """What to watch for: without a template there are no chat requests."""
    tokenizer = "tokenizer_config.json"
    if tokenizer not in repository.files or any(path in repository.files for path in TEMPLATES):
        return ()
    if b'"chat_template"' in (repository.optional(tokenizer, LARGEST_JSON) or b""):
        return ()
    return ("there is no chat template: engines answer completions, not chat requests",)
