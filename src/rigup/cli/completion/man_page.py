"""The man page, in man(7)'s macros: one section a verb, with what its --help says. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rigup import __version__


def man_page(parser: argparse.ArgumentParser) -> str:
    """The page of a parser and of its verbs."""
    verbs = _verbs(parser)
    lines = [
        f'.TH RIGUP 1 "" "rigup {__version__}" "User Commands"',
        ".SH NAME",
        f"{parser.prog} \\- {_text(parser.description or '')}",
        ".SH SYNOPSIS",
        f".B {parser.prog}",
        ".I VERB",
        "[options]",
        ".SH VERBS",
    ]
    for verb, (_, purpose) in verbs.items():
        lines += [".TP", f".B {_text(verb)}", _text(purpose)]
    lines += [".SH OPTIONS", *_arguments(parser), ".SH EXAMPLES", *_epilog(parser)]
    for verb, (inner, _) in verbs.items():
        lines += [f'.SH "{_text(parser.prog).upper()} {_text(verb).upper()}"', *_section(inner)]
    return "\n".join(lines) + "\n"


def _section(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One verb: synopsis, purpose, arguments, its own verbs, examples and exit codes."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (f"{_text(usage)}", ".PP", _text(parser.description or ""))
    yield from _arguments(parser)
    for inner, _ in _verbs(parser).values():
        yield f'.SS "{_text(inner.prog)}"'
        yield from _section(inner)
    yield from _epilog(parser)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction):
            yield from (
                ".TP",
                _names(action),
                _text(parser._get_formatter()._expand_help(action)) if action.help else "",
            )


def _names(action: argparse.Action) -> str:
    """The first line of an argument: its options in bold, and what they take."""
    metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    value = "" if action.nargs == 0 else " ".join(metavar) if isinstance(metavar, tuple) else str(metavar)
    options = ", ".join(f"\\fB{_text(option)}\\fR" for option in action.option_strings)
    return f"{options} \\fI{_text(value)}\\fR".strip() if value else options


def _epilog(parser: argparse.ArgumentParser) -> Iterator[str]:
    if parser.epilog:
        yield from (".PP", ".nf", *(_text(line) for line in parser.epilog.rstrip().splitlines()), ".fi")


def _verbs(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """By verb, its parser and its purpose."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {one.dest: (group.choices[one.dest], one.help or "") for group in groups for one in group._choices_actions}


def _text(text: str) -> str:
    """Text that troff prints as it is."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
