"""Reads an engine's option and variable names from its Python sources, without importing them."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterator

VLLM_OPTIONS = re.compile(r"vllm/(engine/arg_utils|entrypoints/.*cli_args)\.py$")
SGLANG_OPTIONS = re.compile(r"sglang/srt/(server_args|arg_groups/.*)\.py$")
BOOLEAN = ("bool", "bool | None", "Optional[bool]")


def read_names(engine: str, wheel: zipfile.ZipFile) -> tuple[set[str], set[str]]:
    """The options and variables of an engine, read from its wheel. Raises KeyError if it finds none."""
    readers = {"vllm": (vllm_options, vllm_variables), "sglang": (sglang_options, sglang_variables)}
    options, variables = (read(wheel) for read in readers[engine])
    if not options or not variables:
        raise KeyError(f"no options or variables of {engine} in the wheel")
    return options, variables


def vllm_options(wheel: zipfile.ZipFile) -> set[str]:
    """Literal options, fields of FrontendArgs, and the negation of each boolean option."""
    options: set[str] = set()
    booleans: set[str] = set()
    for tree in _trees(wheel, VLLM_OPTIONS):
        for names, action in _added_arguments(tree):
            options |= names
            if "BooleanOptional" in action:
                booleans |= names
        for owner, field, annotation in _fields(tree):
            if owner.endswith("FrontendArgs"):
                options.add(field)
            if annotation in BOOLEAN and (owner.endswith("FrontendArgs") or owner in ("EngineArgs", "AsyncEngineArgs")):
                booleans.add(field)
    return options | {f"--no-{name[2:]}" for name in booleans & options if name.startswith("--")}


def vllm_variables(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of `environment_variables` in vllm/envs.py."""
    tree = ast.parse(wheel.read("vllm/envs.py"))
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        if getattr(node.target, "id", "") == "environment_variables":
            return {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    raise KeyError("no environment_variables in vllm/envs.py")


def sglang_options(wheel: zipfile.ZipFile) -> set[str]:
    """Literal options, and those derived from annotated fields: `name: A[type, "help"]` or `Arg(...)`."""
    options: set[str] = set()
    for tree in _trees(wheel, SGLANG_OPTIONS):
        for names, _ in _added_arguments(tree):
            options |= names
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                options |= _annotated(node, node.annotation)
    return options


def sglang_variables(wheel: zipfile.ZipFile) -> set[str]:
    """Every SGLANG_ and SGL_ name in the package, except in its tests."""
    names: set[str] = set()
    for member in wheel.namelist():
        if member.startswith("sglang/") and member.endswith(".py") and "/test/" not in member:
            names |= set(re.findall(r"\b(?:SGLANG|SGL)_[A-Z][A-Z0-9_]+\b", wheel.read(member).decode(errors="replace")))
    return {name for name in names if not name.endswith("_")}


def _trees(wheel: zipfile.ZipFile, pattern: re.Pattern[str]) -> Iterator[ast.Module]:
    for member in wheel.namelist():
        if pattern.match(member):
            yield ast.parse(wheel.read(member))


def _added_arguments(tree: ast.Module) -> Iterator[tuple[set[str], str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            action = " ".join(ast.unparse(key.value) for key in node.keywords if key.arg == "action")
            yield {str(word) for word in words if str(word).startswith("-")}, action


def _fields(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield node.name, "--" + field.target.id.replace("_", "-"), ast.unparse(field.annotation)


def _annotated(node: ast.AnnAssign, annotation: ast.Subscript) -> set[str]:
    if getattr(annotation.value, "id", "") not in ("A", "Annotated") or not isinstance(node.target, ast.Name):
        return set()
    plain = "--" + node.target.id.replace("_", "-")
    names: set[str] = set()
    for part in getattr(annotation.slice, "elts", [])[1:]:
        if isinstance(part, ast.Constant | ast.JoinedStr | ast.BinOp):
            names = {plain}
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Arg":
            keywords = {key.arg: key.value for key in part.keywords}
            if getattr(keywords.get("no_cli"), "value", False):
                return set()
            name = str(getattr(keywords.get("cli_name"), "value", plain))
            names = {name} | {str(alias.value) for alias in getattr(keywords.get("aliases"), "elts", [])}
            if "action" in keywords and "BooleanOptional" in ast.unparse(keywords["action"]):
                names.add(f"--no-{name[2:]}")
    return names
