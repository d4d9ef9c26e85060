"""vLLM: what its wheel's Python sources say of options, variables, architectures, quantisations and parsers."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator

from rigup.catalogue.engine_packages.syntax import added_arguments, assigned, keys, keys_in, trees

OPTIONS = re.compile(r"vllm/(engine/arg_utils|entrypoints/.*cli_args)\.py$")
TOOL_PARSERS = ("vllm/tool_parsers/__init__.py", "vllm/entrypoints/openai/tool_parsers/__init__.py")
BOOLEAN = ("bool", "bool | None", "Optional[bool]")


def options(wheel: zipfile.ZipFile) -> set[str]:
    """Literal options, fields of FrontendArgs, and the negation of each boolean option."""
    found: set[str] = set()
    booleans: set[str] = set()
    for tree in trees(wheel, OPTIONS):
        for names, action in added_arguments(tree):
            found |= names
            if "BooleanOptional" in action:
                booleans |= names
        for owner, field, annotation in _fields(tree):
            if owner.endswith("FrontendArgs"):
                found.add(field)
            if annotation in BOOLEAN and (owner.endswith("FrontendArgs") or owner in ("EngineArgs", "AsyncEngineArgs")):
                booleans.add(field)
    return found | {f"--no-{name[2:]}" for name in booleans & found if name.startswith("--")}


def variables(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of `environment_variables` in vllm/envs.py."""
    return keys_in(wheel, "vllm/envs.py", "environment_variables")


def architectures(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of the tables that `_VLLM_MODELS`, the registry of models, is made of."""
    path = "vllm/model_executor/models/registry.py"
    tables = assigned(ast.parse(wheel.read(path)))
    parts = [
        part.id
        for value in tables.get("_VLLM_MODELS", ())
        for key, part in zip(getattr(value, "keys", ()), getattr(value, "values", ()), strict=True)
        if key is None and isinstance(part, ast.Name)
    ]
    found = {name for part in parts for value in tables.get(part, ()) for name in keys(value)}
    if not found:
        raise KeyError(f"no _VLLM_MODELS in {path}")
    return found


def quantizations(wheel: zipfile.ZipFile) -> set[str]:
    """The values of `QuantizationMethods`."""
    return keys_in(wheel, "vllm/model_executor/layers/quantization/__init__.py", "QuantizationMethods")


def tool_parsers(wheel: zipfile.ZipFile) -> set[str]:
    """The parsers of tool calls that the wheel registers; up to 0.12.0 in another folder."""
    there = set(wheel.namelist())
    path = next((path for path in TOOL_PARSERS if path in there), TOOL_PARSERS[0])
    return keys_in(wheel, path, "_TOOL_PARSERS_TO_REGISTER")


def reasoning_parsers(wheel: zipfile.ZipFile) -> set[str]:
    """The parsers of reasoning that the wheel registers."""
    return keys_in(wheel, "vllm/reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER")


def _fields(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield node.name, "--" + field.target.id.replace("_", "-"), ast.unparse(field.annotation)
