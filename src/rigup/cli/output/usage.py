"""Parses command lines: what is wrong with one is a message and a hint, as any other error."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rigup.errors import InputError

_PATTERNS = (
    (r"the following arguments are required: (.+)", r"\1: missing"),
    (r"argument ([^:]+): expected one argument", r"\1: needs a value"),
    (r"(?s)argument ([^:]+): invalid choice: '(.*)' \(choose from .*\)", r'\1: unknown "\2"'),
    (r"(?s)argument ([^:]+): (.*)", r"\1: \2"),
)


class Parser(argparse.ArgumentParser):
    """argparse's parser, which raises InputError where that one prints its usage and ends the process."""

    def __init__(self, **settings: Any) -> None:
        self._again = False
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter} | settings)

    def parse_args(self, words: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """The arguments. Raises InputError for the first option or word that no argument takes."""
        args: argparse.Namespace
        args, unknown = self.parse_known_args(words)
        if unknown:
            parser = self._of_verb(words)
            option = unknown[0].partition("=")[0]
            if option.startswith("-"):
                known = re.findall(r"--[a-z][a-z-]+", parser.format_help())
                raise InputError(f"{parser._where()}unknown option {option}", parser.nearest(option, known))
            raise InputError(f'{parser._where()}one word too many: "{unknown[0]}"', parser.help_command())
        return args

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but a word may stand behind options: it may be for an argument that need not be given.

        argparse takes such an argument as left out as soon as it reads the one before it.
        """
        found, left = super().parse_known_args(args, namespace)
        words = [word for word in left if not word.startswith("-") or word == "-"]
        takes_all = any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in self._actions)
        if not words or self._again or takes_all:
            return found, left
        self._again = True
        try:
            return self.parse_known_intermixed_args(args, None)
        finally:
            self._again = False

    def error(self, message: str) -> NoReturn:
        """Raises InputError for what argparse has found."""
        for pattern, plain in _PATTERNS:
            if re.match(pattern, message):
                message = re.sub(pattern, plain, message)
                break
        verbs = self._verbs()
        if verbs and (found := re.fullmatch(r'[^-].*: unknown "(.*)"', message, re.DOTALL)):
            raise InputError(f'{self._where()}unknown verb "{found[1]}"', self.nearest(found[1], verbs))
        raise InputError(self._where() + message, self.help_command())

    def nearest(self, word: str, known: Iterable[str]) -> str:
        """A hint for a mistyped word: the command with the known one that is most similar, or the help."""
        near = difflib.get_close_matches(word.lower(), sorted(set(known)), n=1)
        return f"{self.prog} {near[0]}" if near else self.help_command()

    def help_command(self) -> str:
        """The command that prints the help of this parser."""
        return f"{self.prog} --help"

    def _where(self) -> str:
        """What messages begin with: "plan: "; rigup's own name comes before it."""
        return "".join(f"{word}: " for word in [self.prog.partition(" ")[2]] if word)

    def _verbs(self) -> Sequence[str]:
        return [name for action in self._actions if isinstance(action.choices, dict) for name in action.choices]

    def _of_verb(self, words: Sequence[str]) -> Parser:
        """The parser of the verb in a command line, or of the verb's own verb."""
        for action in self._actions:
            if isinstance(action.choices, dict):
                found = next((word for word in words if word in action.choices), None)
                if found is not None:
                    parser: Parser = action.choices[found]
                    return parser._of_verb(words[list(words).index(found) + 1 :])
        return self
