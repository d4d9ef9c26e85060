"""What an engine's package says, by engine: names of options and variables, and what the release can serve."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import Path

from rigup.catalogue.abilities import KINDS, AbilityList
from rigup.catalogue.engine_packages import llama_cpp, sglang, vllm
from rigup.service import EngineName

# What reading a package that is not as expected raises.
UNREADABLE = (
    LookupError,
    SyntaxError,
    ValueError,
    RecursionError,
    MemoryError,
    OSError,
    EOFError,
    tarfile.TarError,
    zlib.error,
)
_WHEELS = {"vllm": vllm, "sglang": sglang}


def problem_of(error: BaseException) -> str:
    """What one of UNREADABLE says, without the quotes that a KeyError puts around it."""
    return str(error.args[0] if isinstance(error, LookupError) and error.args else error)


def read_names(engine: str, wheel: zipfile.ZipFile) -> tuple[set[str], set[str]]:
    """The options and variables of an engine, read from its wheel. Raises KeyError if it finds none."""
    reader = _WHEELS[engine]
    options, variables = reader.options(wheel), reader.variables(wheel)
    if not options or not variables:
        raise KeyError(f"no options or variables of {engine} in the wheel")
    return options, variables


def wheel_abilities(engine: EngineName, version: str, wheel: zipfile.ZipFile, file: str, sha256: str) -> AbilityList:
    """What a release can serve, read from its wheel. Raises one of UNREADABLE if it is not as expected."""
    reader = _WHEELS[engine]
    return AbilityList(
        engine=engine,
        version=version,
        file=file,
        sha256=sha256,
        architectures=frozenset(reader.architectures(wheel)),
        quantizations=frozenset(reader.quantizations(wheel)),
        tool_parsers=frozenset(reader.tool_parsers(wheel)),
        reasoning_parsers=frozenset(reader.reasoning_parsers(wheel)),
    )


def archive_names(archive: Path, root: str) -> tuple[set[str], set[str]]:
    """The options and variables of llama.cpp, read from its source archive, whose tree lies in the folder `root`."""
    return llama_cpp.names(llama_cpp.sources(archive, root))


def archive_abilities(version: str, archive: Path, root: str, file: str, sha256: str) -> AbilityList:
    """What a release of llama.cpp can serve, from the same archive."""
    files = llama_cpp.sources(archive, root)
    found = {kind: frozenset(llama_cpp.READERS[kind](files)) for kind in KINDS if kind in llama_cpp.READERS}
    return AbilityList.model_validate(
        {"engine": "llama.cpp", "version": version, "file": file, "sha256": sha256, **found}
    )
