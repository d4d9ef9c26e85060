"""A config.json, of which every value is checked when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.layer_range import MOST_LAYERS
from rigup.plain_values import quoted
from rigup.regular_files import is_shallow
from rigup.units import Frozen, bytes_text

Noun = TypeVar("Noun", bound=Frozen)

LARGEST = 2**24
MOST_COMMAS = 500_000
LARGEST_NUMBER = 2**40
LONGEST_TEXT = 200
TEXT_MODELS = ("text_config", "llm_config", "language_config", "thinker_config")
HINT = "choose another checkpoint of the model; rigup reads config.json as transformers writes it"


class Config:
    """A table of a configuration. where: what messages begin with, "org/model: config.json". hint: of its errors.

    Every method raises InputError, naming the key, for a value that is missing or cannot be right.
    """

    def __init__(self, data: dict[str, Any], where: str, hint: str = HINT) -> None:
        self.data = data
        self.where = where
        self.hint = hint

    @property
    def text_model(self) -> Config:
        """The language model of a model that also sees or hears; else the whole."""
        for key in TEXT_MODELS:
            if isinstance(inner := self.data.get(key), dict):
                return Config({**inner}, f"{self.where}: {key}", self.hint).text_model
        return self

    def has(self, *keys: str) -> bool:
        """Whether one of the keys has a value."""
        return any(self.data.get(key) is not None for key in keys)

    def number(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST_NUMBER) -> int:
        """The first of these keys that has a value."""
        key = next((key for key in keys if self.data.get(key) is not None), None)
        if key is None:
            if default is None:
                raise self.wrong(keys[0], "missing")
            return default
        found = self.data[key]
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(key, f"must be a whole number from {least:,} to {most:,}, not {quoted(found)}")
        return found

    def text(self, key: str, default: str = "") -> str:
        """A short printable text."""
        found = self.data.get(key)
        if found is None:
            return default
        if not isinstance(found, str) or len(found) > LONGEST_TEXT or not found.isprintable():
            raise self.wrong(key, f"must be a short text, not {quoted(found)}")
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        found = self.data.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(key, f"must be true or false, not {quoted(found)}")
        return found

    def table(self, key: str) -> Config:
        """A table within; empty where there is none."""
        found = self.data.get(key)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(key, f"must be a table, not {quoted(found)}")
        return Config(found or {}, f"{self.where}: {key}", self.hint)

    def each_layer(self, key: str, kind: type | tuple[type, ...]) -> Sequence[Any]:
        """A list or text with one value for each layer; values behind the last layer belong to draft layers."""
        found, layers = self.data.get(key), self.layers
        if not isinstance(found, (list, str)) or not all(isinstance(value, kind) for value in found):
            raise self.wrong(key, "must be a list with one value for each layer")
        if not layers <= len(found) <= MOST_LAYERS:
            raise self.wrong(key, f"{len(found)} values for {layers} layers")
        return found

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        kinds = self.data.get("layers_block_type")
        default = len(kinds) if isinstance(kinds, list) else None
        return self.number("num_hidden_layers", "n_layer", "n_layers", default=default, most=MOST_LAYERS)

    @property
    def hidden(self) -> int:
        """The width of the model."""
        return self.number("hidden_size", "n_embd", "d_model")

    def wrong(self, key: str, what: str) -> InputError:
        """The error for a value that cannot be used."""
        return InputError(f"{self.where}: {key}: {what}", self.hint)


def built(noun: type[Noun], fields: dict[str, Any], where: str, hint: str = HINT) -> Noun:
    """The noun with these fields. Raises InputError, beginning with `where`, naming the first that cannot be right."""
    try:
        return noun(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {key}: {first['msg'][:160]}", hint) from None


def read_config(content: bytes, where: str, hint: str = HINT) -> Config:
    """The table that a JSON file is. Infinity, which Python writes into real ones, is read as its name.

    hint: of errors. Raises InputError, beginning with `where`, for what is too large, not JSON or not a table.
    """
    if len(content) > LARGEST:
        raise InputError(f"{where}: {bytes_text(len(content))} are more than the limit of {bytes_text(LARGEST)}", hint)
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MOST_COMMAS:
        raise InputError(f"{where}: too many values", hint)
    try:
        found = json.loads(content, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {str(error)[:100]}", hint) from None
    if not isinstance(found, dict) or not is_shallow(found):
        raise InputError(f"{where}: must be a table, not deeper than 24 levels", hint)
    return Config(found, where, hint)
