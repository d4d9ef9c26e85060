"""From what a repository says to the catalogue's entry of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rigup.catalogue.model import Model
from rigup.checkpoints.config import Config, built
from rigup.checkpoints.layers import read_draft_layers, read_layers
from rigup.checkpoints.mixture import mixture
from rigup.checkpoints.parsers import find_parsers
from rigup.checkpoints.part_sums import CheckpointSums, PartSums
from rigup.errors import InputError
from rigup.plain_values import quoted

# Licences of free software, and those of makers that say they allow commerce, as hubs name them.
COMMERCIAL = re.compile(
    r"(apache-2\.0|mit|bsd(-[23]-clause)?|isc|cc0-1\.0|cc-by-(sa-)?4\.0|openmdw(-1\.[01])?|openrail|llama[234](\.\d)?|gemma"
    r"|nvidia-(nemotron-)?open-model-license)",
    re.IGNORECASE,
)
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")
NON_COMMERCIAL = re.compile(r"non-?commercial|\bnc\b|research-only|cc-by-nc", re.IGNORECASE)


@dataclass(frozen=True)
class Origin:
    """Where figures are from, for `sources`. label: "Qwen/Qwen3-8B@0123456789ab".

    left_out: what the configuration leaves to its class, and where that is from.
    """

    label: str
    config_file: str = "config.json"
    left_out: str = ""

    @property
    def config(self) -> str:
        """The configuration."""
        return f"{self.label}: {self.config_file}"

    def headers(self, what: str) -> str:
        """The headers of weight files."""
        return f"{self.label}: headers of {what}"


@dataclass(frozen=True)
class Extras:
    """What other files say: the maker's sampling, the licence, what to watch for.

    made_from: the repositories that the card names as its bases. card: where that is from.
    """

    sampling: dict[str, float] = field(default_factory=dict)
    license: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    made_from: tuple[str, ...] = ()
    card: str = ""


def longest_context(text: Config) -> int | None:
    """Tokens that engines serve with this configuration; None where its positions are scaled, or it says none."""
    said = text.data.get("rope_scaling") or text.data.get("rope_parameters")
    tables = [said, *said.values()] if isinstance(said, dict) else []  # one for all layers, or one for each kind
    scaled = any(isinstance(table, dict) and "factor" in table for table in tables)
    return None if scaled or not text.has(*CONTEXT_KEYS) else text.number(*CONTEXT_KEYS)


def model_of(
    name: str,
    config: Config,
    sums: CheckpointSums,
    origin: Origin,
    files: str,
    extras: Extras,
    models: Mapping[str, Model],
) -> Model:
    """The model that a configuration and the headers of its weights describe. models: those of the catalogue.

    Raises InputError naming the key of the configuration that is missing or cannot be right.
    """
    text = config.text_model
    identity = _identity(config, text)
    found = find_parsers(name, identity.get("architectures", ()), extras.made_from, extras.card, models)
    feed_forward = mixture(text)
    tied = is_tied(config)
    weights = sums.weights
    fields: dict[str, Any] = {
        "name": name,
        **identity,
        "layers": text.layers,
        "hidden": text.hidden,
        "residual_streams": text.number("hc_mult", default=1),
        "attention": read_layers(text),
        "mtp_attention": read_draft_layers(text),
        "vocab": text.number("vocab_size"),
        "context": text.number(*CONTEXT_KEYS),
        **feed_forward,
        "tied_embeddings": tied,
        "parameters": weights.body,
        "active_parameters": active(weights, feed_forward),
        "license": extras.license,
        "commercial": allows_commerce(extras.license),
        "sampling": extras.sampling,
        "parsers": found.by_engine,
        "parsers_assumed": found.assumed,
    }
    read = origin.headers(files)
    left_out = f"; left out, {origin.left_out}" if origin.left_out else ""
    fields["sources"] = {
        "layers": f"{origin.config}, which gives the other sizes too{left_out}",
        "attention": origin.config,
        "context": f"{origin.config}: max_position_embeddings",
        "parameters": f"{read}: without draft layers and vision",
        "active_parameters": f"{read}: {feed_forward.get('experts_per_token', 'all')} experts, without the embeddings"
        if feed_forward.get("experts")
        else f"{read}: without the embeddings",
        **({"parsers": found.source} if found.by_engine else {}),
        **extras.sources,
    }
    return built(Model, fields, config.where)


def allows_commerce(license_name: str) -> bool | None:
    """Whether a licence of that name allows commercial use; None for one whose name does not tell."""
    if NON_COMMERCIAL.search(license_name):
        return False
    return True if COMMERCIAL.fullmatch(license_name) else None


def is_tied(config: Config) -> bool:
    """Whether the output head is the embeddings."""
    text = config.text_model
    default = config.flag("tie_word_embeddings", default=text.text("model_type").startswith("gemma"))
    return text.flag("tie_word_embeddings", default=default)


def active(weights: PartSums, feed_forward: dict[str, int]) -> int:
    """Weights that one token goes through: a share of the experts, all else, and the output head, tied or not."""
    idle = 0.0
    if experts := feed_forward.get("experts"):
        idle = weights.of("experts") * (1 - feed_forward["experts_per_token"] / experts)
    embedding = weights.whole["embedding"] if weights.whole["head"] else 0
    return max(1, round(weights.body - idle - embedding))


_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,98}")


def _identity(config: Config, text: Config) -> dict[str, Any]:
    """What engines are asked for."""
    for table in (config, text):
        named = table.data.get("architectures")
        if isinstance(named, list) and named and isinstance(named[0], str) and named[0]:
            if not _CLASS.fullmatch(named[0]):
                raise InputError(
                    f"{table.where}: architectures: {quoted(named[0][:100])} is not the name of a class", table.hint
                )
            return {"architectures": (named[0],)}
    return {"gguf_architecture": text.text("model_type")}
