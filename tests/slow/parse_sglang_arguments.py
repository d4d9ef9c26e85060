"""Run by an environment with SGLang: gives command lines to what its server takes them with, and says what it took.

Reads a JSON list of argument lists on standard input. Prints the options with their choices; for each list the error,
what became of every option in it, what is deprecated, and the class of algorithm that drafts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys

from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm


class Deprecated(logging.Handler):
    """Keeps what is said to be deprecated."""

    said: list[str]

    def emit(self, record: logging.LogRecord) -> None:
        if "deprecated" in record.getMessage().lower():
            self.said.append(record.getMessage())


deprecated = Deprecated()
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
actions = {option: action for action in parser._actions for option in action.option_strings}
answers: list[dict[str, object]] = []
for arguments in json.load(sys.stdin):
    told, deprecated.said = io.StringIO(), []
    logging.getLogger().addHandler(deprecated)  # each call sets logging up again, without it
    try:
        with contextlib.redirect_stderr(told):
            taken = prepare_server_args(arguments)
    except SystemExit:
        answers.append({"error": told.getvalue().strip().splitlines()[-1]})
    else:
        # --config is only read, and leaves nothing of its own
        named = [word for word in arguments if word in actions and word != "--config"]
        took = {option: getattr(taken, actions[option].dest) for option in named}
        try:
            drafts = SpeculativeAlgorithm.from_string(taken.speculative_algorithm).name
        except ValueError as error:
            drafts = str(error)
        answers.append({"took": took, "key": taken.api_key, "deprecated": deprecated.said, "drafts": drafts})
choices = {option: sorted(map(str, action.choices or ())) for option, action in actions.items()}
sys.stdout.write("\n" + json.dumps({"options": choices, "answers": answers}) + "\n")
