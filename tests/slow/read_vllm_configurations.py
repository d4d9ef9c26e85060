"""Run by an environment with vLLM's requirements: reads configurations with the code of the vLLM on the path.

Reads a JSON list of folders and of values of --config-format on standard input; prints for each the class of the
whole and that of the language model.
"""

from __future__ import annotations

import json
import sys

from vllm.transformers_utils.config import get_config

said = []
for folder, form in json.load(sys.stdin):
    config = get_config(folder, trust_remote_code=False, config_format=form)
    said.append([config.architectures, config.get_text_config().architectures])
sys.stdout.write("\n" + json.dumps(said) + "\n")
