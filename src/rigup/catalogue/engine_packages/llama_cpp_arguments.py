"""llama.cpp: the options and variables that its llama-server takes, as common/arg.cpp adds them one by one.

An option is a call: add_opt(common_arg({names}, {names that negate it}, ...).set_examples({programs}).set_env(NAME)).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SERVER = frozenset({"LLAMA_EXAMPLE_SERVER", "LLAMA_EXAMPLE_COMMON"})
# Comments, raw strings, strings, characters, numbers, words, and what is left, sign by sign. What does not end goes to
# the end of the line or the text, so that no text takes longer than its length.
_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|R"([^()\\\s"]{0,16})\(.*?(?:\)\1"|\Z)|"(?:[^"\\\n]|\\.)*"?|'
    r"'(?:[^'\\\n]|\\.){1,10}'|\d[\w.']*|\w+|[^\s\w]",
    re.DOTALL,
)
_CALL = ["add_opt", "(", "common_arg", "("]
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Argument:
    """One option of llama.cpp's programs: all of its names, the programs that take it or do not, and its variable.

    removed: its names are known only to say that it is gone.
    """

    names: frozenset[str]
    programs: frozenset[str]
    excluded: frozenset[str]
    variable: str | None
    removed: bool

    @property
    def of_server(self) -> bool:
        """Whether llama-server takes it."""
        return not self.removed and bool(self.programs & SERVER) and "LLAMA_EXAMPLE_SERVER" not in self.excluded


def arguments(source: str) -> Iterator[Argument]:
    """Each option that a source text adds. Raises LookupError where a call does not end or a list is missing."""
    tokens = [found[0] for found in _TOKEN.finditer(source) if not found[0].startswith(("//", "/*"))]
    lists = _lists(tokens)
    at = 0
    while at < len(tokens):
        if tokens[at] == "add_opt" and tokens[at : at + 4] == _CALL:
            end = _end(tokens, at + 1)
            yield _argument(tokens[at + 3 : end], lists)
            at = end
        else:
            at += 1


def _argument(tokens: Sequence[str], lists: Mapping[str, frozenset[str]]) -> Argument:
    """tokens: from the bracket behind common_arg to the one that closes add_opt."""
    names: set[str] = set()
    at = 1
    while tokens[at] == "{":
        end = _end(tokens, at)
        names |= {_text(word) for word in tokens[at:end] if word.startswith('"')}
        at = end + 1  # behind the comma
    at = _end(tokens, 0)
    removed = "arg_removed" in tokens[:at]
    programs, excluded, variable = frozenset({"LLAMA_EXAMPLE_COMMON"}), frozenset[str](), None
    while tokens[at] == ".":
        method, end = tokens[at + 1], _end(tokens, at + 2)
        given = tokens[at + 3 : end - 1]
        if method == "set_examples":
            programs = _programs(given, lists)
        elif method == "set_excludes":
            excluded = _programs(given, lists)
        elif method == "set_env" and given and given[0].startswith('"'):
            variable = _text(given[0])
        at = end
    return Argument(frozenset(names), programs, excluded, variable, removed)


def _programs(words: Sequence[str], lists: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The programs in braces, or those of a list that has a name."""
    if len(words) == 1:
        if words[0] not in lists:
            raise LookupError(f"no list {words[0]}")
        return lists[words[0]]
    return frozenset(word for word in words if word.startswith("LLAMA_EXAMPLE_"))


def _lists(tokens: Sequence[str]) -> dict[str, frozenset[str]]:
    """The lists of programs that have a name: `initializer_list<enum llama_example> NAME = { ... }`."""
    found: dict[str, frozenset[str]] = {}
    at = 0
    while at < len(tokens):
        end = at + 1
        if tokens[at] == "llama_example" and tokens[at + 1 : at + 5 : 2] == [">", "="] and tokens[at + 4] == "{":
            end = _end(tokens, at + 4)
            found[tokens[at + 2]] = _programs(tokens[at + 4 : end], {})
        at = end
    return found


def _end(tokens: Sequence[str], opening: int) -> int:
    """The index behind the bracket that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at] in _OPENING) - (tokens[at] in _CLOSING)
        if depth == 0:
            return at + 1
    raise LookupError("a bracket is not closed")


def _text(literal: str) -> str:
    return literal.strip('"')
