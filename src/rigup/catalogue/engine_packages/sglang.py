"""SGLang: what its wheel's Python sources say of options, variables, architectures, quantisations and parsers."""

from __future__ import annotations

import ast
import re
import zipfile

from rigup.catalogue.engine_packages.syntax import added_arguments, assigned, keys, keys_in, trees

OPTIONS = re.compile(r"sglang/srt/(server_args|arg_groups/.*)\.py$")
MODELS = re.compile(r"sglang/srt/models/[^/]*\.py$")
QUANTIZATIONS = "sglang/srt/layers/quantization/__init__.py"
TOOL_PARSERS = "sglang/srt/function_call/function_call_parser.py"
REASONING_PARSERS = "sglang/srt/parser/reasoning_parser.py"


def options(wheel: zipfile.ZipFile) -> set[str]:
    """Literal options, and those derived from annotated fields: `name: A[type, "help"]` or `Arg(...)`."""
    found: set[str] = set()
    for tree in trees(wheel, OPTIONS):
        for names, _ in added_arguments(tree):
            found |= names
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                found |= _annotated(node, node.annotation)
    return found


def variables(wheel: zipfile.ZipFile) -> set[str]:
    """Every SGLANG_ and SGL_ name in the package, except in its tests."""
    names: set[str] = set()
    for member in wheel.namelist():
        if member.startswith("sglang/") and member.endswith(".py") and "/test/" not in member:
            names |= set(re.findall(r"\b(?:SGLANG|SGL)_[A-Z][A-Z0-9_]+\b", wheel.read(member).decode(errors="replace")))
    return {name for name in names if not name.endswith("_")}


def architectures(wheel: zipfile.ZipFile) -> set[str]:
    """The classes that the files of models name as their `EntryClass`."""
    found: set[str] = set()
    for member in wheel.namelist():
        if MODELS.match(member) and b"\nEntryClass" in (source := wheel.read(member)):
            for value in assigned(ast.parse(source)).get("EntryClass", ()):
                classes = getattr(value, "elts", [value])
                found |= {each.id for each in classes if isinstance(each, ast.Name)}
    if not found:
        raise KeyError("no EntryClass in sglang/srt/models/")
    return found


def quantizations(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of `BASE_QUANTIZATION_METHODS`, those included that are added for CUDA or for CPUs alone."""
    tree = ast.parse(wheel.read(QUANTIZATIONS))
    found = {key for value in assigned(tree).get("BASE_QUANTIZATION_METHODS", ()) for key in keys(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and re.search(r"\bis_(cuda|cpu)\(\)", ast.unparse(node.test)):
            calls = (call for statement in node.body for call in ast.walk(statement) if isinstance(call, ast.Call))
            found |= {key for call in calls if _is_update(call) for argument in call.args for key in keys(argument)}
    if not found:
        raise KeyError(f"no BASE_QUANTIZATION_METHODS in {QUANTIZATIONS}")
    return found


def tool_parsers(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of `ToolCallParserEnum`."""
    return keys_in(wheel, TOOL_PARSERS, "ToolCallParserEnum")


def reasoning_parsers(wheel: zipfile.ZipFile) -> set[str]:
    """The keys of `DetectorMap`."""
    return keys_in(wheel, REASONING_PARSERS, "DetectorMap")


def _is_update(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "BASE_QUANTIZATION_METHODS.update"


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
