"""Runs on a gateway: smg, from a folder that holds its unpacked wheel.

usage: gateway_cache.py FOLDER [OPTION...]

OPTION: of `smg launch`; none to see whether it can be loaded. It is started without its own command line, which needs
packages that routing by HTTP does not.
"""

from __future__ import annotations

import argparse
import sys


def main(folder: str, words: list[str]) -> None:
    """Runs until it is told to end."""
    sys.path.insert(0, folder)
    from smg.router import Router  # type: ignore[import-not-found]
    from smg.router_args import RouterArgs  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(prog="smg", allow_abbrev=False)
    RouterArgs.add_cli_args(parser)
    if words:
        Router.from_args(RouterArgs.from_cli_args(parser.parse_args(words))).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
