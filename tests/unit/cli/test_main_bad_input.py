"""What a user writes and types: each thing that cannot be used is one message with the path to it, and one hint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rigup.bench import store as bench_results
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.data_files import DATA
from rigup.cli.main import main
from rigup.errors import InputError
from rigup.evaluation import store as evaluation_results
from rigup.lock import load_lock
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.regular_files import home_folder, user_path
from tests.hostile import ESCAPES, mangled, read_safely, texts, toml_value

RIG: dict[str, Any] = {"gpus": "4x RTX 3090"}
SERVICES: dict[str, Any] = {"chat": {"model": "MiniMax-M2.5", "port": 8000, "context": 8192}}
GROUP_DATA = f"rig = {RIG!r}\nservices = {SERVICES!r}\n"
PROPERTY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("inventories", "group_data", "catalogue/models"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "inventories/a.py").write_text('box = ["gpu1.lan"]\n')
    (tmp_path / "group_data/box.py").write_text(GROUP_DATA)
    (tmp_path / "rigup.lock").write_text("schema = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(run: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(InputError) as raised:
        run()
    return raised.value.message, raised.value.hint


def plan() -> object:
    return plan_project(load_project(None))


SSH = [
    ({"ssh_port": "abc"}, "ssh_port: 'abc'"),
    ({"ssh_port": 22.5}, "ssh_port: 22.5"),
    ({"ssh_port": True}, "ssh_port: True"),
    ({"ssh_port": 0}, "ssh_port: 0"),
    ({"ssh_user": 5}, "ssh_user: 5"),
    ({"ssh_user": "a\nb"}, "ssh_user: 'a\\nb'"),
    ({"ssh_key": 5}, "ssh_key: 5"),
    ({"ssh_hostname": 5}, "ssh_hostname: 5"),
    ({"ssh_config_file": 5}, "ssh_config_file: 5"),
    ({"ssh_password": 5}, "ssh_password: the value"),
]


@pytest.mark.parametrize(("data", "named"), SSH, ids=[row[1] for row in SSH])
def test_a_setting_of_ssh_of_another_kind(fleet: Path, data: dict[str, Any], named: str) -> None:
    (fleet / "inventories/a.py").write_text(f"box = [('gpu1.lan', {data!r})]\n")
    message, hint = refused(plan)
    assert message.startswith(f"inventories/a.py: gpu1.lan: {named} is not ") and hint


NAMES = [
    ("", "the name "),
    (" ", "the name "),
    ("a\nb", "'a\\nb' "),
    ("a\n", "'a\\n' "),
    ("\x1b[2J", "'\\x1b[2J' "),
    ("-oProxyCommand=id", "'-oProxyCommand=id' "),
    ("../etc", "'../etc' "),
    ("a,b", "'a,b' "),
]


@pytest.mark.parametrize(("name", "message"), NAMES, ids=[repr(row[0]) for row in NAMES])
def test_what_cannot_name_a_host(fleet: Path, name: str, message: str) -> None:
    (fleet / "inventories/a.py").write_text(f"box = ['gpu1.lan', {name!r}]\n")
    said, hint = refused(plan)
    assert said.startswith(f"inventories/a.py: box[1]: {message}") and hint


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("('gpu1.lan', {5: 6})", "('gpu1.lan', {5: 6})"),
        ("['gpu1.lan']", "['gpu1.lan']"),
        ("('gpu1.lan', ['x' * 100_000])", f"('gpu1.lan', ['{'x' * 42}..."),
    ],
    ids=["a number as key", "a list", "long"],
)
def test_what_is_not_a_host(fleet: Path, entry: str, shown: str) -> None:
    (fleet / "inventories/a.py").write_text(f"box = [{entry}]\n")
    message, hint = refused(plan)
    assert message.startswith(f"inventories/a.py: box[0]: {shown} ") and hint


def test_a_null_byte_has_no_line(fleet: Path) -> None:
    (fleet / "inventories/a.py").write_bytes(b"box = ['gpu1.lan']\0\n")
    assert refused(plan)[0] == "inventories/a.py: contains a null byte"


@pytest.mark.parametrize(
    "name", ["gpu1", "ada@gpu1.lan", "DOMAIN\\ada@gpu_1", "::1", "fe80::1%eth0", "10.0.0.1", "[::1]"]
)
def test_what_can_name_a_host(fleet: Path, name: str) -> None:
    (fleet / "inventories/a.py").write_text(f"box = [{name!r}]\n")
    assert [host.name for host in load_project(None).hosts] == [name]


def test_a_name_of_100_000_characters(fleet: Path) -> None:
    (fleet / "inventories/a.py").write_text("box = ['a' * 100_000]\n")
    expected = ("inventories/a.py: box[0]: a name of 100,000 characters", "write at most 253 characters")
    assert refused(plan) == expected
    (fleet / "inventories/a.py").write_text("globals()['g' * 100_000] = ['gpu1.lan']\n")
    message, hint = refused(plan)
    assert message == f'inventories/a.py: "{"g" * 56}... cannot name a group'
    assert hint == "use letters, digits and underscores, at most 100"
    (fleet / "inventories/a.py").write_text("globals()['a\\nb'] = ['gpu1.lan']\n")
    assert refused(plan)[0] == 'inventories/a.py: "a b" cannot name a group'


RAISED = [
    ("raise GeneratorExit('end')", "inventories/a.py:1: GeneratorExit: end"),
    ("raise SystemExit(3)", "inventories/a.py:1: SystemExit: 3"),
    ("class E(BaseException):\n    def __str__(self): return 1 / 0\nraise E", "inventories/a.py:3: E"),
    ("raise ValueError('x' * 100_000)", f"inventories/a.py:1: ValueError: {'x' * 400}..."),
]


@pytest.mark.parametrize(("text", "message"), RAISED, ids=[row[0][:30] for row in RAISED])
def test_whatever_an_inventory_raises(fleet: Path, text: str, message: str) -> None:
    (fleet / "inventories/a.py").write_text(text)
    said, hint = refused(plan)
    assert said == message and hint


VALUES = [
    ("rig = {'gpus': '\u0664x RTX 3090'}", 'group_data/box.py: rig.gpus: unknown GPU "\u0664x RTX 3090"'),
    ("rig = {'gpus': '9' * 5000 + 'x RTX 3090'}", f'group_data/box.py: rig.gpus: unknown GPU "{"9" * 56}...'),
    (
        "rig = {'gpus': [], 'host_memory_gib': 10**5000}",
        "group_data/box.py: rig.host_memory_gib: the int is too large a number",
    ),
    ("rig['hosts_per_service'] = True", "group_data/box.py: rig.hosts_per_service: must be "),
    ("rig['host_memory_gib'] = 1e23", "group_data/box.py: rig.host_memory_gib: must be at most 65536, not 1e+23"),
    ("rig['host_memory_gib'] = -1", "group_data/box.py: rig.host_memory_gib: must be more than 0, not -1"),
    ("x = []\nfor _ in range(10_000): x = [x]\nrig['gpus'] = x", "nested deeper than 24 levels"),
    ("rig['gpus'] = rig", "nested deeper than 24 levels"),
    (
        "services['chat']['served_name'] = 'a\\x1bb'",
        'services.chat.served_name: "a\\x1bb" ',
    ),
    ("services['chat']['api_key_file'] = 'a\\nb'", 'services.chat.api_key_file: "a\\nb" '),
    ("services['chat']['flags'] = {'--x': 'a\\x1bb'}", 'flags.--x: "a\\x1bb" '),
    ("services['chat']['port'] = True", "group_data/box.py: services.chat.port: "),
    ("services['chat']['context'] = 10**23", "services.chat.context: must be at most 16777216, not"),
    ("services['chat']['listen'] = '::1%a b'", 'services.chat.listen: "::1%a b" '),
    ("services['a' * 100_000] = {}", "group_data/box.py: services: a key: 100,000 "),
    ("services[''] = {'model': 'x'}", 'group_data/box.py: services: "" '),
    ("services['a\\n'] = {'model': 'x'}", 'group_data/box.py: services: a key: "a\\n" '),
    ("driver = 'leave'", 'group_data/box.py: driver: "leave" is not a choice'),
    ("driver = ['keep']", "group_data/box.py: driver: ['keep'] is not a choice"),
    ("hub = 'x' * 100_000", "group_data/box.py: hub: 100,000 "),
]


@pytest.mark.parametrize(("text", "message"), VALUES, ids=[row[0][:40] for row in VALUES])
def test_values_that_nothing_can_have(fleet: Path, text: str, message: str) -> None:
    (fleet / "group_data/box.py").write_text(GROUP_DATA + text)
    said, hint = read_error(plan)
    assert message in said
    assert said.startswith("group_data/box.py: ")
    assert len(said) < 1000
    assert hint


def read_error(run: Callable[[], object]) -> tuple[str, str | None]:
    found: list[InputError] = []

    def read() -> None:
        try:
            run()
        except InputError as error:
            found.append(error)
            raise

    read_safely(read)
    return found[0].message, found[0].hint


NOT_REGULAR = "not a regular file"
FILES = ["inventories/a.py", "group_data/box.py", "rigup.lock", "catalogue/models/own.toml"]


@pytest.mark.parametrize("file", FILES)
def test_what_is_not_a_regular_file_is_not_waited_for(fleet: Path, file: str) -> None:
    path = fleet / file
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    message, hint = read_error(plan)
    assert message.endswith(f"{file}: {NOT_REGULAR}")
    assert hint
    path.unlink()
    path.symlink_to("/dev/zero")
    assert read_error(plan)[0].endswith(f"{file}: {NOT_REGULAR}")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(file)
        assert read_error(plan)[0].endswith(f"{file}: {NOT_REGULAR}")


@pytest.mark.parametrize("file", FILES)
def test_a_byte_order_mark_is_left_out(fleet: Path, file: str) -> None:
    path = fleet / file
    text = path.read_bytes() if path.exists() else b""
    before = len(list(plan_project(load_project(None))))
    path.write_bytes(b"\xef\xbb\xbf" + text)
    assert len(list(plan_project(load_project(None)))) == before


@pytest.mark.parametrize("file", FILES)
def test_what_is_not_utf_8_is_told_with_its_line(fleet: Path, file: str) -> None:
    (fleet / file).write_bytes(b"# one\n# \xe9\n")
    message, hint = read_error(plan)
    assert message.endswith(f"{file}:2: not UTF-8: byte 0xe9")
    assert hint == "save it as UTF-8"


DEEP = [
    "x = " + "[" * 10_000 + "]" * 10_000,
    "x = " + "{a=" * 10_000 + "1" + "}" * 10_000,
    ".".join("a" * 10_000) + " = 1",
]


@pytest.mark.parametrize("file", FILES[2:])
@pytest.mark.parametrize("text", DEEP, ids=["lists", "tables", "dots"])
def test_toml_without_end_is_refused(fleet: Path, file: str, text: str) -> None:
    (fleet / file).write_text(text)
    message, hint = read_error(plan)
    assert message.endswith(f"{file}: nested deeper than 24 levels")
    assert hint


@pytest.mark.parametrize("file", FILES[2:])
def test_numbers_without_end_are_refused(fleet: Path, file: str) -> None:
    (fleet / file).write_text(f"schema = {'9' * 5000}")
    message, hint = read_error(plan)
    assert f"{file}: " in message
    assert hint


@pytest.mark.parametrize("digits", [9, 9000])
def test_a_number_in_sixteen_digits_is_too_large_as_well(fleet: Path, digits: int) -> None:
    (fleet / "rigup.lock").write_text(f"schema = 0x{'f' * digits}")
    shown = 0xFFFFFFFFF if digits == 9 else "the int"  # Python writes no number of more than 4300 digits
    message, hint = refused(plan)
    assert message.startswith(f"{fleet}/rigup.lock: schema: {shown} ") and hint


LONG = [
    f'[[checkpoints]]\nrepo = "{"a" * 100_000}"\nquant = "x"\nrevision = "{"0" * 40}"\nfiles = []\n',
    f'[inputs]\n"{"k" * 100_000}" = 5\n',
    f'"{"k" * 100_000}" = 5\n',
]


@pytest.mark.parametrize("text", LONG, ids=["value", "key", "table"])
def test_of_a_long_text_in_a_lock_the_beginning_is_shown(fleet: Path, text: str) -> None:
    (fleet / "rigup.lock").write_text(text)
    assert len(read_error(plan)[0]) < len(str(fleet)) + 300


def test_a_lock_of_very_many_entries_is_read_in_time_linear_in_their_number(fleet: Path) -> None:
    entry = '[[sources]]\nengine = "vllm"\nversion = "{}"\naddress = "https://x/y"\nsha256 = "{}"\nroot = "x"\n'
    (fleet / "rigup.lock").write_text("".join(entry.format(number, "0" * 64) for number in range(20_000)))
    assert len(read_safely(lambda: load_lock(fleet / "rigup.lock"), seconds=20).sources) == 20_000


CHECKPOINT = {
    "repo": '"a/b"',
    "quant": '"Q4_K_M"',
    "revision": f'"{"a" * 40}"',
    "files": f'[{{ path = "m.gguf", size = 1, sha256 = "{"b" * 64}" }}]',
}
LOCKS = [
    ("repo", '"../b"'),
    ("repo", '"a/.."'),
    ("repo", '"-a/b"'),
    ("quant", '"../x"'),
    ("quant", '"a b"'),
    *(
        ("files", f'[{{ path = {path}, size = 1, sha256 = "{"b" * 64}" }}]')
        for path in ('"../x"', '"a/../b"', '"/x"', '"a\\n"', '"-x"', '"./a"', '"a//b"', '"a/"', '"."', '""')
    ),
    *(
        ("files", f'[{{ path = "x", size = {size}, sha256 = "{"b" * 64}" }}]')
        for size in ("true", '"1"', "-1", "1e23", "1.0")
    ),
]


@pytest.mark.parametrize(("key", "value"), LOCKS)
def test_a_lock_holds_nothing_outside_its_folders(tmp_path: Path, key: str, value: str) -> None:
    def write(entry: dict[str, str]) -> Path:
        path = tmp_path / "rigup.lock"
        path.write_text("[[checkpoints]]\n" + "".join(f"{name} = {text}\n" for name, text in entry.items()))
        return path

    assert load_lock(write(CHECKPOINT)).checkpoints
    message, hint = refused(lambda: load_lock(write({**CHECKPOINT, key: value})))
    assert f"checkpoints[0].{key}" in message
    assert hint
    assert "restore the lock" in hint


WORDS = [
    (["init", ""], "argument 2: empty", "omit it, or give a value"),
    (
        ["init", " "],
        "argument 2: empty",
        "omit it, or give a value",
    ),
    (["init", "--", "-oProxyCommand=id"], "rigup init: '-oProxyCommand=id' ", None),
    (["init", "x.lan", "--group", ""], "--group: empty", "omit it, or give a value"),
    (["lock", "--upgrade", ""], "--upgrade: empty", "omit it, or give a value"),
    (["lock", "--upgrade="], "--upgrade: empty", "omit it, or give a value"),
    (["lock", "--vendor", ""], "--vendor: empty", "omit it, or give a value"),
    (["plan", "--limit", "a\x1b[2J"], "--limit: contains a control character", None),
    (["plan", "a\nb"], "argument 2: contains a control character", None),
    (["plan", "a\udce9"], "argument 2: not UTF-8", "write it in UTF-8"),
    (["plan", "--limit", "x" * 100_000], "--limit: 100,000 characters are too many", "write at most 65,536 characters"),
    (["log", "gpu1.lan", "--last", "-3"], "--last: -3 is not between 1 and 100,000", "omit it to use the default"),
    (["log", "gpu1.lan", "--last", "0"], "--last: 0 is not between 1 and 100,000", "omit it to use the default"),
    (
        ["log", "gpu1.lan", "--last", "\u0663"],
        '--last: "\u0663" is not a whole number',
        "write it in the digits 0 to 9",
    ),
    (["log", "gpu1.lan", "--last", "1_0"], '--last: "1_0" is not a whole number', "write it in the digits 0 to 9"),
    (["log", "gpu1.lan", "--last", "9" * 5000], f'--last: "{"9" * 57}..." is not a whole number', None),
    (["apply", "--rolling", "\u0663"], '--rolling: "\u0663" is not a whole number', None),
    (["apply", "--rolling", "0"], "--rolling: 0: must be 1 or more", None),
    (["rollback", "--to", "-1"], "--to: -1 is not between 1 and 1,000,000,000", None),
    (["bench", "--timeout", "inf"], '--timeout: "inf" is not a number', None),
    (["tune", "box", "--runs", "-1"], "--runs: -1 is not between 1 and 1,000", None),
    (["lab", "up", "--hosts", "\u0663"], '--hosts: "\u0663" is not a whole number', None),
]


@pytest.mark.parametrize(("words", "message", "hint"), WORDS, ids=[" ".join(row[0])[:40] for row in WORDS])
def test_words_of_a_command_line(
    fleet: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str, hint: str | None
) -> None:
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"rigup: {message}")
    assert [line.split(": ")[0] for line in lines] == ["rigup", "hint"]
    assert hint is None or lines[1] == f"hint: {hint}"


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "--concurrency", "1,\u0663"],
        ["eval", "--questions", "\u0663"],
        ["metrics", "--interval", "\u0663"],
        ["status", "--watch", "\u0663"],
    ],
)
def test_digits_are_those_of_ascii(fleet: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert f"{words[1]}: " in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["inventories", "group_data", "catalogue/models"])
def test_a_folder_that_cannot_be_looked_into_is_not_an_empty_one(
    fleet: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listdir(path: Path) -> list[str]:
        if str(path).endswith(folder):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    listed = os.listdir
    monkeypatch.setattr(os, "listdir", listdir)
    message, hint = refused(plan)
    assert message.endswith(f"{folder}: Permission denied")
    assert hint


def test_a_home_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_uid: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    expected = ("HOME: not set, and this user has no home folder", "set HOME to a folder that you own")
    assert refused(home_folder) == expected
    assert refused(lambda: user_path("~/key", "hub_token_file")) == expected
    monkeypatch.setenv("HOME", "")
    assert refused(home_folder) == expected


def test_the_home_of_a_user_that_there_is_not() -> None:
    expected = ("hub_token_file: ~no-such-user: this user does not exist", "write the whole path")
    assert refused(lambda: user_path("~no-such-user/key", "hub_token_file")) == expected


STREAMS = [
    ("<&-", ("status", "--ask-sudo-password"), "hint: set RIGUP_SUDO_PASSWORD", 2),
    ("<&-", ("plan", "nowhere.py"), "rigup: nowhere.py: ", 2),
    (">&-", ("plan", "nowhere.py", "--json"), "rigup: nowhere.py: ", 2),
    ("2>&-", ("plan", "nowhere.py"), "", 2),
]


@pytest.mark.parametrize(
    ("closed", "words", "said", "code"), STREAMS, ids=[" ".join((row[0], *row[1])) for row in STREAMS]
)
def test_a_closed_stream_is_not_a_traceback(
    fleet: Path, closed: str, words: tuple[str, ...], said: str, code: int
) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "rigup", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


RESULTS = [
    "[" * 100_000,
    '{"schema": Infinity}',
    '{"schema": 1, "levels": NaN}',
    '{"schema": ' + "9" * 5000 + "}",
    "[]",
    "",
]


@pytest.mark.parametrize("read", [bench_results.read_result, evaluation_results.read_result])
@pytest.mark.parametrize("text", RESULTS, ids=[text[:20] for text in RESULTS])
def test_a_result_that_is_none(fleet: Path, read: Callable[[str], object], text: str) -> None:
    (fleet / "result.json").write_text(text)
    message, hint = read_error(lambda: read("result.json"))
    assert message.startswith("result.json: not a result of rigup ")
    assert hint
    (fleet / "result.json").unlink()
    os.mkfifo(fleet / "result.json")
    assert read_error(lambda: read("result.json"))[0] == f"result.json: {NOT_REGULAR}"


@pytest.mark.parametrize("verb", ["bench", "eval"])
def test_results_that_were_changed_by_hand(fleet: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    documents = {
        "bench": {"schema": 1, "levels": [7], "endpoint": {}},
        "eval": {"schema": 1, "tasks": {"a": {"scores": [], "digest": 1, "version": [], "questions": "x"}}}
        | {"endpoint": {}, "conditions": {}},
    }
    (fleet / "a.json").write_text(json.dumps(documents[verb]))
    assert main([verb, "--compare", "a.json", "a.json"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


# Properties: a result, or one error that is shown with exit code 2, within bounds.


@PROPERTY
@given(st.fixed_dictionaries({}, optional={"rig": mangled(RIG), "services": mangled(SERVICES)}))
def test_any_group_data_is_planned_or_refused(fleet: Path, data: dict[str, Any]) -> None:
    (fleet / "group_data/box.py").write_text(
        "inf, nan = float('inf'), float('nan')\n" + "".join(f"{key} = {value!a}\n" for key, value in data.items())
    )
    read_safely(plan)


@PROPERTY
@given(
    st.lists(st.one_of(texts, st.sampled_from(ESCAPES), st.tuples(texts, st.dictionaries(texts, texts, max_size=3))))
)
def test_any_inventory_is_read_or_refused(fleet: Path, entries: list[Any]) -> None:
    (fleet / "inventories/a.py").write_text(f"box = {entries!a}\n")
    read_safely(lambda: load_project(None))


SSH_KEYS = ("ssh_port", "ssh_user", "ssh_key", "ssh_hostname", "ssh_config_file", "ssh_strict_host_key_checking")


@PROPERTY
@given(st.fixed_dictionaries({}, optional={key: mangled("x") for key in SSH_KEYS}))
def test_any_setting_of_ssh_is_read_or_refused(fleet: Path, data: dict[str, Any]) -> None:
    text = f"inf, nan = float('inf'), float('nan')\nbox = [('gpu1.lan', {data!a})]\n"
    (fleet / "inventories/a.py").write_text(text)
    read_safely(lambda: load_project(None), "inventories/a.py")


TOML_LINES = (
    *("schema = 1", "[[checkpoints]]", 'repo = "a/b"', "[inputs]", "[driver]", "size = 1e400", "x = inf", "x = ["),
    *("[[model]]", 'name = "m"', "layers = nan", "parameters = -1", "[defaults]", "[a.b.c]", "[[sources]]", "'''"),
)
TOML = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass")),
    st.lists(st.sampled_from(TOML_LINES)).map(lambda lines: "\n".join(lines).encode()),
)


@PROPERTY
@given(TOML)
def test_any_lock_is_read_or_refused(fleet: Path, content: bytes) -> None:
    (fleet / "rigup.lock").write_bytes(content)
    read_safely(lambda: load_lock(fleet / "rigup.lock"), "rigup.lock")


@PROPERTY
@given(TOML, st.sampled_from(("gpus", "models", "checkpoints", "engines", "overheads")))
def test_any_file_of_a_catalogue_is_read_or_refused(fleet: Path, content: bytes, folder: str) -> None:
    (fleet / "catalogue" / folder).mkdir(exist_ok=True)
    path = fleet / "catalogue" / folder / "own.toml"
    path.write_bytes(content)
    try:
        read_safely(lambda: load_catalogue(fleet), "catalogue")
    finally:
        path.unlink()


def rows_of(folder: str, table: str) -> dict[str, Any]:
    """The first entry of the toolkit's own files, with what all entries of its file have."""
    data = tomllib.loads(min((DATA / folder).glob("*.toml")).read_text())
    return {**data.get("defaults", {}), **data[table][0]}


ENTRIES = {
    "gpus": st.fixed_dictionaries({"gpu": mangled([rows_of("gpus", "gpu")])}),
    "models": st.fixed_dictionaries({"model": mangled([rows_of("models", "model")])}),
    "checkpoints": st.fixed_dictionaries({"checkpoint": mangled([rows_of("checkpoints", "checkpoint")])}),
    "engines": mangled(tomllib.loads((DATA / "engines/llama_cpp.toml").read_text())),
    "overheads": st.fixed_dictionaries(
        {
            "overhead": mangled(
                [
                    {
                        "engine": "vllm",
                        "version": "0.33.0",
                        "gpu": "A",
                        "gpus": 1,
                        "runtime_mib": 1,
                        "sources": {"a": "b"},
                    }
                ]
            )
        }
    ),
}
LOCK = {
    "schema": 1,
    "inputs": {"inventories/a.py": f"sha256:{'a' * 64}"},
    "driver": {"version": "580.178.04", "branch": "580"},
    "checkpoints": [
        {"repo": "a/b", "quant": "Q4", "revision": "a" * 40, "files": [{"path": "x", "size": 1, "sha256": "b" * 64}]}
    ],
    "sources": [{"engine": "vllm", "version": "1", "address": "https://x/y", "sha256": "b" * 64, "root": "x"}],
}


def toml_text(tables: Any) -> bytes:
    """Top-level values of any kind, one a line."""
    lines = [f"{json.dumps(key)} = {toml_value(value)}\n" for key, value in tables.items()] if tables else []
    return "".join(lines).encode(errors="surrogatepass")


@PROPERTY
@given(mangled(LOCK).filter(lambda value: isinstance(value, dict)).map(toml_text))
def test_a_lock_with_wrong_values_is_read_or_refused(fleet: Path, content: bytes) -> None:
    (fleet / "rigup.lock").write_bytes(content)
    read_safely(lambda: load_lock(fleet / "rigup.lock"), "rigup.lock")


@PROPERTY
@given(st.sampled_from(sorted(ENTRIES)).flatmap(lambda name: st.tuples(st.just(name), ENTRIES[name])))
def test_an_entry_with_wrong_values_is_planned_with_or_refused(fleet: Path, entry: tuple[str, Any]) -> None:
    folder, tables = entry
    path = fleet / "catalogue" / folder / "own.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(toml_text(tables if isinstance(tables, dict) else {}))
    try:
        read_safely(plan, seconds=20)
    finally:
        path.unlink()


@PROPERTY
@given(
    st.lists(st.one_of(st.sampled_from(("plan", "log", "--last", "--limit", "--json", "--here", "gpu1.lan")), texts))
)
def test_any_command_line_ends_with_an_exit_code(fleet: Path, words: list[str]) -> None:
    safe = [word for word in words if word not in ("lab", "apply")]
    try:
        assert main(["plan", *safe]) in (0, 1, 2)
    except SystemExit as ended:  # argparse's own refusals and --help
        assert ended.code in (0, 2)
