"""Run by an environment with vLLM's requirements: parses command lines with the real parser of the vLLM on the path.

Reads a JSON list of argument lists on standard input; prints the options, and for each list what was said of it: the
error, or which of its options are deprecated.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser

parser = make_arg_parser(FlexibleArgumentParser())
# A logger tells of these, once for each option.
deprecated = {option for action in getattr(parser, "_deprecated", ()) for option in action.option_strings}
said = []
for arguments in json.load(sys.stdin):
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        try:
            parser.parse_args(arguments)
        except SystemExit as ended:
            said.append(told.getvalue().strip().splitlines()[-1:] if ended.code else [])
        else:
            said.append([f"{word} is deprecated" for word in arguments if word in deprecated])
options = sorted({option for action in parser._actions for option in action.option_strings})
sys.stdout.write("\n" + json.dumps({"options": options, "said": said}) + "\n")
