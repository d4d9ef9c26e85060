"""The lock as text: TOML, sorted, one key a line. Equal locks are equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from rigup.artifacts import LockedEnvironment
from rigup.lock import Lock, LockedCheckpoint
from rigup.units import Frozen

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def lock_text(lock: Lock) -> str:
    """The whole file, without empty parts. A new kind of entry adds one block here."""
    blocks = [f"schema = {lock.schema_version}"]
    if lock.inputs:
        blocks.append(_block("[inputs]", dict(sorted(lock.inputs.items()))))
    if lock.engines:
        blocks.append(_block("[engines]", dict(sorted(lock.engines.items()))))
    if lock.driver:
        blocks.append(_block("[driver]", _scalars(lock.driver)))
    if lock.cuda_toolkit:
        blocks.append(_block("[cuda_toolkit]", {"version": lock.cuda_toolkit.version}))
        blocks.append(_block("[cuda_toolkit.packages]", dict(sorted(lock.cuda_toolkit.packages.items()))))
    if lock.uv:
        blocks.append(_block("[uv]", {"version": lock.uv.version}))
        blocks.append(_block("[uv.files]", dict(sorted(lock.uv.files.items()))))
    if lock.smg:
        blocks.append(_block("[smg]", {"version": lock.smg.version}))
        blocks.append(_block("[smg.files]", dict(sorted(lock.smg.files.items()))))
    if lock.moe_configs:
        blocks.append(_block("[moe_configs]", dict(sorted(lock.moe_configs.items()))))
    for checkpoint in sorted(lock.checkpoints, key=lambda entry: (entry.repo, entry.quant)):
        blocks += _checkpoint(checkpoint)
    for source in sorted(lock.sources, key=lambda entry: (entry.engine, entry.version)):
        blocks.append(_block("[[sources]]", _scalars(source)))
    for environment in sorted(lock.environments, key=lambda entry: entry.name):
        blocks += _environment(environment)
    for image in sorted(lock.images, key=lambda entry: entry.name):
        blocks.append(_block("[[images]]", _scalars(image)))
    for harness in sorted(lock.harnesses, key=lambda entry: entry.name):
        blocks.append(_block("[[harnesses]]", harness.model_dump(exclude={"files"})))
        blocks.append(_block("[harnesses.files]", dict(sorted(harness.files.items()))))
    return "\n\n".join(blocks) + "\n"


def _checkpoint(checkpoint: LockedCheckpoint) -> Iterable[str]:
    identity: dict[str, str | int] = {
        "repo": checkpoint.repo,
        "quant": checkpoint.quant,
        "revision": checkpoint.revision,
    }
    identity |= {"location": checkpoint.location} if checkpoint.location else {}
    identity |= {} if checkpoint.template_tools is None else {"template_tools": checkpoint.template_tools}
    yield _block("[[checkpoints]]", identity)
    for file in sorted(checkpoint.files, key=lambda entry: entry.path):
        yield _block("[[checkpoints.files]]", _scalars(file))
    if (table := checkpoint.read_tensors) is not None:
        yield _block("[checkpoints.read_tensors]", table.model_dump(exclude={"layers"}))
        for part in table.model_dump(mode="json", exclude_defaults=True)["layers"]:
            yield _block("[[checkpoints.read_tensors.layers]]", part)


def _environment(environment: LockedEnvironment) -> Iterable[str]:
    """The environment's identity, then one line for each wheel, so that a changed package is one line of a diff."""
    unknown = set() if environment.bytes else {"bytes"}
    yield _block("[[environments]]", environment.model_dump(exclude={"files", "addresses", *unknown}))
    yield _block("[environments.files]", dict(sorted(environment.files.items())))
    if environment.addresses:
        yield _block("[environments.addresses]", dict(sorted(environment.addresses.items())))


def _block(heading: str, values: Mapping[str, str | int]) -> str:
    return "\n".join([heading, *(f"{_key(key)} = {_value(value)}" for key, value in values.items())])


def _scalars(entry: Frozen) -> dict[str, str | int]:
    """The fields of an entry, in the order of its class."""
    return dict(entry.model_dump())


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _value(key)


def _value(value: str | int) -> str:
    """A TOML string is a JSON string, except that TOML needs DEL escaped."""
    if isinstance(value, int):
        return str(value).lower()  # true and false are numbers as well
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
