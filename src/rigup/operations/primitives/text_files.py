"""Small root-owned text files, compared in one round trip (pyinfra's files.put needs three per file)."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.command_parts import FILE_MARK, files_of
from rigup.operations.primitives.steps import step


class TextFiles(FactBase[dict[str, str]]):
    """The contents, by path, of those files that exist, without surrounding white space."""

    default = dict

    def command(self, paths: tuple[str, ...]) -> str:
        return (
            "; ".join(f"[ -f {path} ] && {{ echo '{FILE_MARK}{path}'; cat {path}; echo; }}" for path in paths)
            + "; true"
        )

    def process(self, output: list[str]) -> dict[str, str]:
        return files_of(output)


def changed_texts(host: Host, files: Mapping[str, str]) -> dict[str, str]:
    """Those of these files that have other contents on the host.

    files: text by path; "" for one that must not exist.
    """
    there = host.get_fact(TextFiles, paths=tuple(files))
    return {path: text for path, text in files.items() if there.get(path, "") != text.strip()}


@operation()
def text_files(
    files: Mapping[str, str], then: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Ensures that these files have these contents; each is replaced atomically.

    + files: text by path; "" for a file that must not exist
    + then: (path, words) pairs; a command runs once if any of its files was changed
    """
    wrong = changed_texts(host, files)
    if not wrong:
        host.noop("the files are up to date")
        return
    yield step(_write, wrong, tuple(dict.fromkeys(words for path, words in then if path in wrong)))


def _write(host: Host, files: Mapping[str, str], commands: tuple[tuple[str, ...], ...]) -> None:
    for path, text in files.items():
        if text:
            remote.make_folders(host, path.rpartition("/")[0])
            remote.write_file(host, path, text)
        else:
            remote.check_output(host, "rm", "-f", path)
    for words in commands:
        remote.check_output(host, *words, timeout=300)
