"""What the site generates: every verb's help, the keys of every document of --json, and its own style."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# Beside two columns of links on 1,280 pixels, 90 columns of a terminal fit; wider windows have room for more.
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset pre > code { font-size: 0.6rem; line-height: 1.5; }
"""
RIGUP = os.environ.get("RIGUP", ".venv/bin/rigup")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    files.append(File.generated(config, "reference/json.md", content=json_page(json.loads(said("schema")))))
    files.append(File.generated(config, "site.css", content=STYLE))
    return files


def said(*words: str) -> str:
    """What rigup prints."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    return subprocess.run([RIGUP, *words], check=True, capture_output=True, text=True, env=environment).stdout


def commands_page() -> str:
    """The help of each verb."""
    whole = said("--help")
    table = whole.partition("positional arguments:")[2].partition("\noptions:")[0]
    verbs = [line.split()[0] for line in table.splitlines() if line.startswith("    ") and line[4] != " "]
    assert len(verbs) > 10, "the help lists no verbs"
    parts = ["# Commands", _block(whole)]
    for verb in verbs:
        parts += [f"## rigup {verb}", _block(said(verb, "--help"))]
    return "\n\n".join(parts) + "\n"


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def json_page(schemas: dict[str, Any]) -> str:
    """A table of keys for each type of each document."""
    intro = "# JSON documents\n\nWhat each verb prints with `--json`; `rigup schema VERB` prints the JSON schema."
    return "\n".join([intro, *(line for verb, schema in schemas.items() for line in _verb(verb, schema))]) + "\n"


def _verb(verb: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n## rigup {verb} --json\n"
    types = schema.get("$defs", {})
    documents = {str(one.get("$ref")).rpartition("/")[2] for one in schema.get("anyOf", [])}
    for name, one in sorted(types.items(), key=lambda item: item[0] not in documents):
        if name == "ErrorDocument" or "properties" not in one:
            continue
        yield f"\n### {verb}: {name}\n"
        yield " ".join(one.get("description", "").split()) + "\n"
        yield "| key | type |\n| --- | --- |"
        for key, value in one["properties"].items():
            optional = "" if key in one.get("required", ()) else " (may be missing)"
            yield f"| `{key}` | {_type(value)}{optional} |"


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "anyOf" in value:
        return " or ".join(_type(one) for one in value["anyOf"])
    if "enum" in value or "const" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) else "object"
    return str(value.get("type", "anything"))
