"""uv for tests that run it: one pinned release, out of this machine's cache or once from its package index."""

from __future__ import annotations

import functools
from pathlib import Path

from rigup.artifacts import LockedUv
from rigup.sources.uv import uv_program

UV = LockedUv(
    version="0.13.9",
    files={
        "uv-0.13.9-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": (
            "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"
        ),
        "uv-0.13.9-py3-none-manylinux_2_28_aarch64.whl": (
            "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375"
        ),
    },
)


@functools.cache
def local_uv() -> Path:
    """Its program. Asked for before a test puts an index of its own in place of this machine's."""
    return uv_program(UV)
