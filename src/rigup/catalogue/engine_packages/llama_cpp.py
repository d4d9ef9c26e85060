"""llama.cpp: what its source archive says of options, architectures, its converter and types of tensors.

It has no lists of parsers: it reads the format of tool calls and reasoning off the model's chat template.
"""

from __future__ import annotations

import ast
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rigup.catalogue.engine_packages.llama_cpp_arguments import arguments
from rigup.catalogue.engine_packages.syntax import assigned

ARGUMENTS = "common/arg.cpp"
ARCHITECTURES = "src/llama-arch.cpp"
TENSOR_TYPES = "ggml/src/ggml.c"
NAMES = "gguf-py/gguf/constants.py"
CONVERTER = re.compile(r"conversion/[a-z0-9_]+\.py|convert_hf_to_gguf\.py")
READ = frozenset({ARGUMENTS, ARCHITECTURES, TENSOR_TYPES, NAMES})
LARGEST = 2**26
Sources = Mapping[str, str]


def sources(archive: Path, root: str) -> dict[str, str]:
    """The files of a source archive that are read here, by their path below the archive's `root`. Nothing is unpacked.

    Raises LookupError if they are too large or one is missing, and what tarfile raises if the archive cannot be read.
    """
    found: dict[str, str] = {}
    left = LARGEST
    with tarfile.open(archive) as opened:
        for member in opened:
            path = member.name.removeprefix(f"{root.rstrip('/')}/")
            if not member.isfile() or (path not in READ and not CONVERTER.match(path)):
                continue
            left -= member.size
            if left < 0:
                raise LookupError(f"{path} is too large to read")
            file = opened.extractfile(member)
            assert file is not None
            found[path] = file.read().decode(errors="replace")
    if missing := sorted(READ - found.keys()):
        raise LookupError(f"the archive has no {missing[0]}")
    return found


def names(files: Sources) -> tuple[set[str], set[str]]:
    """The options of llama-server, and the variables that stand for them."""
    found = [argument for argument in arguments(files[ARGUMENTS]) if argument.of_server]
    if not found:
        raise LookupError(f"no add_opt in {ARGUMENTS}")
    options = {name for argument in found for name in argument.names}
    return options, {argument.variable for argument in found if argument.variable}


def architectures(files: Sources) -> set[str]:
    """The names in `LLM_ARCH_NAMES`, less what stands for none that llama-server loads."""
    return set(_architecture_names(files).values()) - {"clip", "(unknown)"}


def layer_split_only(files: Sources) -> set[str]:
    """The architectures that `--split-mode tensor` cannot split, which `llm_arch_supports_sm_tensor` lists."""
    names = _architecture_names(files)
    body = files[ARCHITECTURES].partition("bool llm_arch_supports_sm_tensor")[2].partition("return false")[0]
    return {names[key] for key in re.findall(r"case (LLM_ARCH_\w+):", body) if key in names}


def quantizations(files: Sources) -> set[str]:
    """The types of tensors, without those that were taken out."""
    found = set(re.findall(r'\.type_name\s*=\s*"([a-zA-Z0-9_]+)"', files[TENSOR_TYPES])) - {"DEPRECATED"}
    if not found:
        raise LookupError(f"no type_name in {TENSOR_TYPES}")
    return found


def conversions(files: Sources) -> set[str]:
    """ "class=architecture" for each class of a `config.json` that the converter makes the text part of a GGUF of."""
    names = {
        ast.unparse(key): value.value
        for table in assigned(ast.parse(files[NAMES])).get("MODEL_ARCH_NAMES", ())
        if isinstance(table, ast.Dict)
        for key, value in zip(table.keys, table.values, strict=True)
        if key is not None and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    classes = {
        node.name: node
        for path, text in files.items()
        if CONVERTER.fullmatch(path)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    for node in classes.values():
        made_of = names.get(_architecture(node, classes))
        found |= {f"{name}={made_of}" for name in _registered(node) if made_of not in (None, "clip")}
    if not found:
        raise LookupError("the converter registers no models")
    return found


def _architecture(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> str:
    """A class's own `model_arch`, or that of the first class it is derived from; "" if none says."""
    seen: set[str] = set()
    while node.name not in seen:
        seen.add(node.name)
        for statement in node.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "model_arch":
                return ast.unparse(statement.value).removeprefix("gguf.")
        node = next(
            (classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes), node
        )
    return ""


def _registered(node: ast.ClassDef) -> set[str]:
    calls = [call for call in node.decorator_list if isinstance(call, ast.Call)]
    return {
        str(name.value)
        for call in calls
        if getattr(call.func, "attr", "") == "register"
        for name in call.args
        if isinstance(name, ast.Constant)
    }


def _architecture_names(files: Sources) -> dict[str, str]:
    table = files[ARCHITECTURES].partition("LLM_ARCH_NAMES")[2].partition("};")[0]
    found = dict(re.findall(r'\{\s*(LLM_ARCH_\w+)\s*,\s*"([^"]+)"\s*\}', table))
    if not found:
        raise LookupError(f"no LLM_ARCH_NAMES in {ARCHITECTURES}")
    return found


READERS: dict[str, Callable[[Sources], set[str]]] = {
    "architectures": architectures,
    "conversions": conversions,
    "layer_split_only": layer_split_only,
    "quantizations": quantizations,
}
