"""Judges: an engine's own code, run without its GPUs by the Python of its environment (docs/judges.md).

    python -m rigup.programs.judge.ENGINE < CASES > ANSWERS

They need the engine and torch, and are sent to a host together, as an archive that Python imports from.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
from pathlib import Path

ENGINES = ("vllm", "sglang")
WEIGHING = ("vllm",)
"""Those that build the model, and so know what it leaves for the cache. The others are told."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def archive() -> bytes:
    """The judges as a zip file for PYTHONPATH; the same bytes each time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        files = {f"judge/{path.name}": path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))}
        for name, text in {"../__init__.py": b"", "__init__.py": b"", **files}.items():
            packed.writestr(zipfile.ZipInfo(posixpath.normpath(f"rigup/programs/{name}"), _EPOCH), text)
    return content.getvalue()
