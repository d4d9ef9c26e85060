"""Whether a checkpoint's chat template takes tools: engines give it those of a request in a variable `tools`.

Sources: transformers, apply_chat_template; llama.cpp b11434 common/chat.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rigup.checkpoints.config import read_config
from rigup.checkpoints.repository import Repository
from rigup.errors import InputError

NAMED = "additional_chat_templates/"
ALONE = "chat_template.jinja"
IN_JSON = ("chat_template.json", "tokenizer_config.json")
IN_GGUF = "tokenizer.chat_template"
LARGEST = 2**22
_OPENS, _CLOSES = re.compile(r"\{[%{]"), re.compile(r"[%}]\}")
_TOOLS = re.compile(r"\btools\b")


def takes_tools(templates: Iterable[str]) -> bool | None:
    """Whether an expression or statement of one of them names the tools of a request; None without templates."""
    found = [any(_TOOLS.search(_CLOSES.split(part, 1)[0]) for part in _OPENS.split(each)[1:]) for each in templates]
    return any(found) if found else None


def repository_templates(repository: Repository) -> tuple[str, ...]:
    """The templates of a checkpoint in safetensors; () where there is none that can be read."""
    paths = [path for path in repository.files if path == ALONE or path.startswith(NAMED)]
    if paths:
        contents = (repository.optional(path, LARGEST) for path in paths)
        return tuple(content.decode(errors="replace") for content in contents if content is not None)
    for path in IN_JSON:
        if (content := repository.optional(path, LARGEST)) is None:
            continue
        try:
            said = read_config(content, path).data.get("chat_template")
        except InputError:
            continue
        if found := _texts(said):
            return found
    return ()


def gguf_templates(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The templates in a GGUF file: one, and others by name."""
    found = (value for key, value in metadata.items() if key == IN_GGUF or key.startswith(f"{IN_GGUF}."))
    return tuple(value for value in found if isinstance(value, str))


def _texts(said: object) -> tuple[str, ...]:
    """One template, or a list of templates with names."""
    each = said if isinstance(said, list) else [{"template": said}]
    texts = [entry.get("template") for entry in each if isinstance(entry, dict)]
    return tuple(text for text in texts if isinstance(text, str))
