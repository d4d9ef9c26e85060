"""tests/published/shapes.json is what transformers builds on PyTorch's meta device, for every model in it.

torch is its build for CPUs and everything else as vLLM's build for CPUs is locked, all by hash. Only transformers is
newer: some of the models are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.programs.build_environment import requirements
from rigup.sources.python_environment import resolve_environment
from tests.published.collect import SHAPES, read_configs
from tests.slow.test_real_sglang import install
from tests.unit.sources.local_uv import local_uv

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("src/rigup/layer_range.py")]

ROOT = Path(__file__).parents[2]
TRANSFORMERS = (
    "transformers-5.23.0-py3-none-any.whl",
    "018e82fd07490ad5bb58414f65e31576033dc7f36bed10c574843f69b90991bf",
)
# what transformers and torch import to build a model, and rigup to name its layers
NEEDED = re.compile(
    r"(torch|numpy|huggingface_hub|hf_xet|tokenizers|safetensors|regex|pyyaml|packaging|tqdm|filelock|typing_extensions"
    r"|sympy|networkx|jinja2|markupsafe|fsspec|mpmath|httpx2?|httpcore2?|truststore|anyio|certifi|h11|idna|sniffio|typer|typer_slim"
    r"|click|shellingham|rich|markdown_it_py|mdurl|pygments|pydantic|pydantic_core|annotated_types|typing_inspection"
    r"|annotated_doc|requests|urllib3|charset_normalizer|setuptools)-.*",
    re.IGNORECASE,
)
COMPARE = """
import json, sys
from tests.published.collect import rows_of, tensors_of
stored, configs = json.load(sys.stdin)
differ = {}
for repo, rows in stored.items():
    made = rows_of(tensors_of(repo, configs[repo]))
    if sorted(map(json.dumps, made)) != sorted(map(json.dumps, rows)):
        differ[repo] = [row for row in made if row not in rows][:3]
print(json.dumps(differ))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with transformers, made by uv from hashes only."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the CPU build of torch that pip finds here is for Python 3.11")
    release = load_catalogue().engines_by_name["vllm"].version("0.32.0")
    assert release is not None
    locked = resolve_environment(local_uv(), release, "cpu", "x86_64").environment
    files = {name: sha256 for name, sha256 in locked.files.items() if NEEDED.fullmatch(name)}
    listed = requirements({**files, TRANSFORMERS[0]: TRANSFORMERS[1]}, locked.addresses)
    folder = cache_folder() / "tests" / f"shapes-{hashlib.sha256(listed.encode()).hexdigest()[:16]}"
    if not (folder / "made").exists():
        install(folder, listed)
        (folder / "made").touch()
    return folder / "bin" / "python"


def test_every_stored_shape_is_built_again(python: Path) -> None:
    stored, configs = json.loads(SHAPES.read_text()), read_configs()
    known = {repo: configs[repo]["config"] for repo in stored}
    variables = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    words = [str(python), "-c", COMPARE]
    asked = json.dumps([stored, known])
    done = subprocess.run(words, input=asked, capture_output=True, text=True, env=variables, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {}
    assert len({config["model_type"] for config in known.values()}) > 20
