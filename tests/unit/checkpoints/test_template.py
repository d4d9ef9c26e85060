"""Whether a chat template takes tools: read from what a repository or a GGUF file has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rigup.checkpoints.repository import local_repository
from rigup.checkpoints.template import gguf_templates, repository_templates, takes_tools
from tests.hostile import bounded

PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
WITH_TOOLS = "{%- if tools %}\n{{- tools | tojson }}{% endif %}" + PLAIN


@pytest.mark.parametrize(
    ("templates", "takes"),
    [
        ((), None),
        ((PLAIN,), False),
        ((WITH_TOOLS,), True),
        ((PLAIN, WITH_TOOLS), True),
        (("{{ messages }} You have no tools. {# tools #}",), False),
        (("{%- for tool in builtin_tools %}",), False),
        (("{%- set found =\n  tools or [] -%}",), True),
        (("{{ unfinished tools",), True),
    ],
)
def test_a_template_takes_tools_that_it_names(templates: tuple[str, ...], takes: bool | None) -> None:
    assert takes_tools(templates) is takes


def test_a_hostile_template_is_read_in_time() -> None:
    with bounded():
        assert takes_tools(["{%" * 2**19, "{{ to" * 2**18]) is False


@pytest.mark.parametrize(
    ("files", "takes"),
    [
        ({"chat_template.jinja": WITH_TOOLS, "tokenizer_config.json": json.dumps({"chat_template": PLAIN})}, True),
        ({"chat_template.json": json.dumps({"chat_template": PLAIN})}, False),
        ({"tokenizer_config.json": json.dumps({"chat_template": WITH_TOOLS})}, True),
        (
            {
                "tokenizer_config.json": json.dumps(
                    {
                        "chat_template": [
                            {"name": "default", "template": PLAIN},
                            {"name": "tool_use", "template": WITH_TOOLS},
                        ]
                    }
                )
            },
            True,
        ),
        ({"tokenizer_config.json": json.dumps({"chat_template": ["tools", 7, {"template": 7}]})}, None),
        ({"tokenizer_config.json": "{"}, None),
        ({"tokenizer_config.json": "{}"}, None),
        ({}, None),
    ],
)
def test_templates_of_a_repository(tmp_path: Path, files: dict[str, str], takes: bool | None) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert takes_tools(repository_templates(local_repository(tmp_path, "org/model"))) is takes


def test_templates_of_a_gguf_file() -> None:
    assert takes_tools(gguf_templates({"general.architecture": "llama"})) is None
    assert takes_tools(gguf_templates({"tokenizer.chat_template": PLAIN})) is False
    named = {"tokenizer.chat_template": PLAIN, "tokenizer.chat_template.tool_use": WITH_TOOLS}
    assert takes_tools(gguf_templates(named)) is True
