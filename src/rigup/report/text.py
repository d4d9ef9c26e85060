"""The text of a bug report, in sections; values are redacted before they become text. Pure."""

from __future__ import annotations

import json
from typing import Any

from rigup.report.redaction import Redactor

_HEAD = """\
rigup report of {host}, {when}
Known secrets, and text that looks like one, were redacted. Host names and addresses were not: read this report before
you share it.
"""


def report_text(host: str, when: str, sections: dict[str, Any], redactor: Redactor) -> str:
    """The report: each section by its title, text as it is and other values as JSON; empty sections are left out."""
    parts = [_HEAD.format(host=host, when=when)]
    for title, content in sections.items():
        if content:
            if not isinstance(content, str):  # redact first: JSON puts an option and its value on separate lines
                content = json.dumps(redactor.value(content), indent=1, ensure_ascii=False)
            parts.append(f"==== {title} ====\n{content.rstrip()}\n")
    return redactor.text("\n".join(parts))
