"""No body passes HAProxy in which an engine reads another model; the engines read it as Python's readers do."""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.gateway.haproxy import ENDPOINTS
from tests.hostile import SAFETY_S
from tests.unit.gateway.test_haproxy_running import CHAT, HAPROXY, KEY, NARROW, Engine, ask, running

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")

# "narrow" may use the model "small" alone.
AMBIGUOUS = {
    "twice": b'{"model":"small","model":"big"}',
    "twice, the other first": b'{"model":"big","model":"small"}',
    "twice, the same": b'{"model":"small","model":"small"}',
    "after what is nested": b'{"model":"small","messages":[{"model":"x"}],"tools":{"a":[{}]},"model":"big"}',
    "escaped letter": b'{"model":"small","mod\\u0065l":"big"}',
    "all escaped": b'{"model":"small","\\u006d\\u006f\\u0064\\u0065\\u006c":"big"}',
    "another key is escaped": b'{"model":"small","m\\/n":"big"}',
    "a broken key": b'{"model":"small","mod\xffel":"big"}',
    "an overlong key": b'{"model":"small","mod\xc1\xa5l":"big"}',
    "behind a quoted quote": b'{"model":"small","x":"\\"","model":"big"}',
    "behind a backslash": b'{"model":"small","x":"\\\\","model":"big"}',
    "behind a comment": b'{"model":"small"/* " */,"model":"big"/* " */}',
    "in a second object": b'{"model":"small"}{"model":"big"}',
    "in a second line": b'{"model":"small"}\n{"model":"big"}',
    "behind a null": b'{"model":"small"}\0{"model":"big"}',
    "in single quotes": b'{"model":"small",\'model\':"big"}',
    "a list": b'[{"model":"small"}]',
    "not text": b'{"model":["small"]}',
    "a number": b'{"model":4}',
    "a null in the name": b'{"model":"small\\u0000"}',
    "an end of line in the name": b'{"model":"small\\u000a"}',
    "no end": b'{"model":"small"',
    "another bracket": b'{"model":"small"]',
    "nothing between": b'{"model":"small" "model":"big"}',
    "a byte order mark": b'\xef\xbb\xbf{"model":"small"}',
    "UTF-16": '{"model":"big"}'.encode("utf-16"),
    "UTF-16 in no doubt": '{"model":"big"}'.encode("utf-16-le"),
    "UTF-32": '{"model":"big"}'.encode("utf-32-be"),
    "a form": b"model=small&model=big",
    "a form of parts": b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nsmall\r\n--x--\r\n',
    "first letter escaped": b'{"model":"small","\\u006dodel":"big"}',
    "last letter escaped, first": b'{"mode\\u006C":"big","model":"small"}',
    "escaped alone": b'{"\\u006dodel":"small"}',
    "nested too deeply to tell": b'{"model":"small","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
PLAIN = {
    "last": b'{"messages":[{"role":"user","content":"model"}],"model":"small"}',
    "nested ones beside": b'{"tools":[{"model":"big"},{"model":"x","model":"y"}],"model":"small","x":{"model":"big"}}',
    "in texts": b'{"x":"\\"model\\":\\"big\\",","model":"small","y":"{[\\\\"}',
    "white space": b'\r\n\t { "model"\n:\t"small" ,\r\n"temperature" : -1.5E+3 , "stream":true,"stop":null } \n',
    "all kinds": '{"a":{},"b":[],"c":"","d":"é\\u00e9\\n","e":1E5,"mode":2,"models":3,"model":"small"}'.encode(),
    "escaped name": b'{"model":"sm\\u0061ll"}',
    "deeper than HAProxy reads": b'{"x":' + b"[" * 100 + b"]" * 100 + b',"model":"small"}',
    "escaped slashes": b'{"messages":[{"content":"a\\/b"}],"model":"small","x":"c\\/d"}',
    "other escapes": b'{"x":"\\u4e2d\\ud83d\\ude00\\b","model":"small"}',
    "400 levels": b'{"model":"small","x":' + b"[" * 400 + b"]" * 400 + b"}",
    "long": b'{"model":"small","x":"' + b'\\n\\"' * 200_000 + b'"}',
    "many keys": b'{"model":"small",' + b",".join(b'"k%d":[{}]' % number for number in range(50_000)) + b"}",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Engine, Engine]]:
    """A gateway with an engine for the model that its client may use, and one for another."""
    small, big = Engine(), Engine()
    with running(tmp_path_factory.mktemp("g"), {"small": [small.server_port], "big": [big.server_port]}) as port:
        yield port, small, big
    small.end()
    big.end()


@pytest.mark.parametrize("key", [NARROW, KEY], ids=["one model", "all models"])
@pytest.mark.parametrize("body", AMBIGUOUS.values(), ids=list(AMBIGUOUS))
def test_what_can_be_read_in_two_ways_reaches_no_engine(
    site: tuple[int, Engine, Engine], body: bytes, key: str
) -> None:
    port, small, big = site
    before = len(small.read), len(big.read)
    status, content, _ = ask(port, body, key)
    assert (status, content["error"]["param"]) == (400, "model")
    assert (len(small.read), len(big.read)) == before


@pytest.mark.parametrize("path", ENDPOINTS)
def test_no_endpoint_takes_the_model_twice(site: tuple[int, Engine, Engine], path: str) -> None:
    for body in (AMBIGUOUS["twice"], AMBIGUOUS["escaped letter"]):
        status, content, _ = ask(site[0], body, NARROW, path)
        assert (status, content["error"]["code"]) == (400, "model_ambiguous")
    assert ask(site[0], PLAIN["last"], NARROW, path)[0] == 200


@pytest.mark.parametrize("body", PLAIN.values(), ids=list(PLAIN))
def test_what_has_one_reading_reaches_its_engine_as_it_is(site: tuple[int, Engine, Engine], body: bytes) -> None:
    port, small, big = site
    before = len(big.read)
    assert ask(port, body, NARROW)[0] == 200
    assert small.read[-1] == body
    assert len(big.read) == before


def test_a_body_is_json_whatever_the_client_calls_it(site: tuple[int, Engine, Engine]) -> None:
    port, small, _ = site
    kinds = ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/json; charset=utf-16")
    for kind in kinds:
        assert ask(port, PLAIN["last"], NARROW, **{"Content-Type": kind})[0] == 200
        assert small.heard[-1]["content-type"] == "application/json"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
def test_a_compressed_body_is_not_taken(site: tuple[int, Engine, Engine], coding: str) -> None:
    status, content, _ = ask(site[0], PLAIN["last"], NARROW, **{"Content-Encoding": coding})
    assert (status, content["error"]["code"]) == (415, "content_encoding")


KEYS = ('"model"', '"model"', '"mode"', '"m"', '""', '"mod\\u0065l"', '"model.x"', '"$.model"', '"models"', '"é"')
PLAIN_VALUES = ('"small"', '"big"', '""', '"\\""', '"}{]["', '"\\\\"', '"model"', "null", "-1.5e3", "true", "[]", "{}")
PIECES = (*KEYS, *PLAIN_VALUES, ":", ",", "{", "}", "[", "]", '"', "\\", " ", "\n", "\0", "'", "/*", "*/", "\ufeff")


def value(dice: random.Random, depth: int) -> str:
    """JSON, nested at most three levels deeper."""
    kind = dice.random()
    if kind < 0.5 or depth == 3:
        return dice.choice(PLAIN_VALUES)
    if kind < 0.75:
        return f"[{','.join(value(dice, depth + 1) for _ in range(dice.randrange(3)))}]"
    return table(dice, depth + 1)


def table(dice: random.Random, depth: int = 0) -> str:
    """An object, whose keys may come twice."""
    pairs = (f"{dice.choice(KEYS)}:{value(dice, depth)}" for _ in range(dice.randrange(5)))
    return f"{{{','.join(pairs)}}}"


def mangled(dice: random.Random) -> bytes:
    """A body that is JSON, or nearly so."""
    text = table(dice) if dice.random() < 0.5 else f'{{{dice.choice(KEYS)}:{value(dice, 0)},"model":"small"}}'
    for _ in range(dice.choice((0, 0, 1, 2))):
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(PIECES) + text[at + dice.randrange(2) :]
    return text.encode(dice.choice(("utf-8",) * 12 + ("utf-8-sig", "utf-16", "utf-16-be", "utf-32")))


@given(seed=st.integers(0, 2**32))
def test_an_engine_reads_the_model_that_was_checked(site: tuple[int, Engine, Engine], seed: int) -> None:
    """Fifty bodies on one connection for each example."""
    port, small, big = site
    dice = random.Random(seed)
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=SAFETY_S)
    for _ in range(50):
        body = mangled(dice)
        link.request("POST", CHAT, body, {"Authorization": f"Bearer {KEY}"})
        reply = link.getresponse()
        reply.read()
        assert reply.status in (200, 400, 404), body
    link.close()
    for engine, model in ((small, "small"), (big, "big")):
        for body in engine.read:
            for read in (json.loads, pydantic_core.from_json):
                try:
                    found = read(body)
                except ValueError:
                    continue
                assert found["model"] == model, body
        engine.read.clear()
