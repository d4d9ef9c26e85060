"""`rigup schema`: the JSON schema of what a verb prints with --json."""

from __future__ import annotations

import argparse

from rigup.cli.output.lines import print_json

EPILOG = """\
examples:
  rigup schema plan                    print the schema of rigup plan --json
  rigup schema                         print the schemas of all verbs, by verb

Within a schema's number, keys are only added: accept keys that you do not know.

exit codes: 0 printed, 2 usage error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds VERB."""
    parser.add_argument("of", nargs="?", metavar="VERB", help="a verb with --json (default: all of them)")


def run(args: argparse.Namespace) -> int:
    """Prints the schema; contacts no host."""
    from rigup.cli.schema.documents import DOCUMENTS, schema_of
    from rigup.errors import InputError
    from rigup.plain_values import quoted
    from rigup.planner.inputs.validation import suggestion

    if args.of is not None and args.of not in DOCUMENTS:
        raise InputError(f"VERB: {quoted(args.of)} has no --json", suggestion(args.of, DOCUMENTS))
    print_json(schema_of(args.of) if args.of else {verb: schema_of(verb) for verb in DOCUMENTS})
    return 0
