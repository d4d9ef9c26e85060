"""Redacts secrets in text that leaves the fleet: known secrets, and text that looks like one. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote

from rigup.printable import printable

REDACTED = "[redacted]"
# Shorter secrets would match in too many places.
LEAST_LENGTH = 4

# Limits the characters before the word that marks a secret: without it long lines take quadratic time.
_BEFORE = r"[\w.-]{0,60}"
_NAME = _BEFORE + r"(?:key|token|secret|passw(?:or)?d|passphrase|credential|authorization)s?"
# Names that mark a secret in a line like "name: value"; others such as "host key: " and "EOS token: " are common.
_SURE = (
    _BEFORE + r"(?:api[-_]?key|(?:access|auth|bearer|hf|hub)[-_]?token|secret(?:[-_][\w-]*)?|passw(?:or)?d|passphrase)"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_LIST = _BEFORE + r"api[-_]?keys?"
# an option's name, which does not contain "--"
_OPTION = r"(?<!-)--(?:[\w.]|-(?!-)){0,60}"
_OPTION_NAME, _OPTION_LIST = (_OPTION + name.removeprefix(_BEFORE) for name in (_NAME, _LIST))
_MANY = _BEFORE + r"(?:api[-_]?key|passw(?:or)?d|passphrase)s"
# Of "pass" and "pwd" whole words count: not bypass=, and not the PWD of a shell, which is a folder.
_SHORT = r"(?:[\w.-]{0,60}[_.-])?(?:ssh)?(?:pass|pwd)"
_SWITCHES = r"(?!/|(?:\d{1,3}|true|false|yes|no|on|off|none)\b)"
_SURE_OR_HEADER = rf"(?:{_SURE}|{_MANY}|{_BEFORE}(?:authorization|cookie)|x-[\w-]{{0,40}}(?:key|token)|{_SHORT})"
_AUTHORIZATION = r"""\bauthorization["']?\s{0,9}[:=]\s{0,9}["']?"""
_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s"',;]+)"""
_WORDS = r"(?:[^\s;|&]{1,100}\s){0,12}?"
_SCHEME = r"(?:Basic|Bearer|Negotiate|Token)\s{1,9}"


def _between(quote: str) -> tuple[str, ...]:
    """Patterns for values that end at a quote and may contain spaces: words of a list, and assignments."""
    rest = rf"(?:[^{quote}\\]|\\.)+"
    word = rf"{quote}\s*,\s*{quote}"
    return (
        rf"({_OPTION_LIST}{word})(?!-){rest}(?:{word}(?!-){rest})*",
        rf"({_OPTION_NAME}{word})(?!-){rest}",
        rf"((?<={quote}){_NAME}\s*=\s*){rest}(?={quote})",
        rf"({quote}{_NAME}{quote}\s*:\s*\[\s*){_VALUE}(?:\s*,\s*{_VALUE})*",
        rf"({quote}{_NAME}{quote}\s*:\s*){_VALUE}",
        rf"({quote}{_SHORT}{quote}\s*:\s*){_VALUE}",
        # a header as a pair: ('x-api-key', '...'), (b'x-api-key', b'...'), and as bytes in a mapping
        rf"([(\[]\s*b?{quote}{_SURE_OR_HEADER}{quote}\s*,\s*b?{quote}){rest}(?={quote}\s*[)\]])",
        rf"(b{quote}{_SURE_OR_HEADER}{quote}\s*:\s*b{quote}){rest}",
        # a variable as Kubernetes and others have it
        rf"({quote}name{quote}\s*:\s*{quote}{_NAME}{quote}\s*,\s*{quote}value{quote}\s*:\s*{quote}){rest}",
    )


def _escaped() -> tuple[str, ...]:
    """Patterns for JSON within JSON, at any depth: quotes have the same backslashes before and after each text."""
    mark = r"""(?<!\\)(?P<mark>\\{1,7}["'])"""
    again = r"(?<!\\)(?P=mark)"
    rest = rf"(?:.*?(?={again})|.*)"
    return (
        rf"({mark}(?:{_NAME}|{_SHORT}|{_BEFORE}cookie)(?P=mark)\s*:\s*\[\s*(?P=mark))(?:.*?(?={again}\s*\])|.*)",
        rf"({mark}(?:{_NAME}|{_SHORT}|{_BEFORE}cookie)(?P=mark)\s*:\s*(?P=mark)){rest}",
        rf"({mark}{_OPTION_NAME}(?P=mark)\s*,\s*(?P=mark))(?!-){rest}",
    )


# Values after a name of a secret: in a header, in JSON, in an environment, on a command line, in a log.
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # schemes with one word redact one word; others redact the rest
        rf"""({_AUTHORIZATION}{_SCHEME})[^\s"',]+""",
        rf"""({_AUTHORIZATION}Digest\s).*""",
        rf"""({_AUTHORIZATION})(?!\s|{_SCHEME}|Digest\s)[^"'\r\n]+""",
        r"""((?<![\w-])(?:set-)?cookie["']?\s{0,9}[:=]\s{0,9}["']?)[^"'\r\n]+""",
        # a header as a word of a command line: -H 'x-api-key: ...'
        rf"""((?<=["']){_NAME}\s{{0,9}}:\s{{0,9}})[^"'\r\n]+""",
        *_between('"'),
        *_between("'"),
        *_escaped(),
        # a line of its own, as in a file or behind a journal's "program[1]: "
        r"((?:^|\]:)\s*(?:export\s+|-\s+)?[\w.-]{0,60}(?:passw(?:or)?d|passphrase)\s*[:=]\s*)\S.*",
        rf"""((?:^|\]:)\s*(?:-\s+)?{_BEFORE}token["']?\s*:[ \t]+)(?:{_VALUE}|[^\s"',;]+)""",
        r"""(\btoken\s?:[ \t]{1,9})(?=[^\s\d]*\d)(?=[^\sA-Za-z]*[A-Za-z])[\w.~+/=-]{12,}""",
        rf"""((?<![\w.-]){_LIST}["']?\s*=\s*)(?:{_VALUE}|[^\s"',;\]]+)(?:,[^\s"',;\]=]+(?=[\s"',;\]]|$))*""",
        rf"""((?<![\w.-]){_NAME}["']?\s*=\s*)(?:{_VALUE}|[^\s"',;\]]+)""",
        rf"""({_OPTION_LIST}[ =])(?!-)(?:{_VALUE}|["']?[^\s"']+)""",
        rf"""({_OPTION_NAME}[ =])(?!-)(?:{_VALUE}|["']?[^\s"',]+)""",
        rf"""((?<![\w."'-]){_SURE}\s*:[ \t]+)(?:{_VALUE}|[^\s"',;]+)""",
        r"(\bBearer\s+)[^\s\"',]+",
        # an address that opens whatever it names for as long as it is valid, as those of a hub's storage
        r"""([?&;](?:[\w-]{0,40}(?:signature|security-token)|sig)=)[^&\s"']+""",
        r"""((?<![\w-])x-[\w-]{0,40}key["']?\s{0,9}:\s{0,9}["']?)[^"'\s,;]+""",
        r"""(\bcurl\s[^\r\n]{0,100}?(?<=\s)(?:-u|--user)[ =]["']?[^\s:"']{1,60}:)[^\s"']+""",
        r"(\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9})\S+",  # a line of .netrc
        # what its name alone does not tell from a switch
        rf"""((?<![\w.-])(?:--)?{_SHORT}\s?=\s?){_SWITCHES}(?:{_VALUE}|[^\s"',;&\]]+)""",
        rf"""((?<![\w.-])--{_SHORT}\s){_SWITCHES}(?!-)(?:{_VALUE}|[^\s"',;]+)""",
        r"""((?<![\w-])["']auth["']\s*:\s*["'])(?=[^"']*[\d=])[\w+/=-]{12,}""",  # of ~/.docker/config.json
        # command lines that take a password as a short option
        rf"""((?<![\w-])sshpass\s(?:-\w\s){{0,3}}-p\s?){_WORD}""",
        rf"""((?<![\w-])(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump)\s{_WORDS}(?-i:-p)\s?)(?!-){_WORD}""",
        rf"""((?<![\w-])(?:docker|podman|helm registry)\slogin\s{_WORDS}(?-i:-p)\s?)(?!-){_WORD}""",
        rf"""((?<![\w-])redis-cli\s{_WORDS}(?-i:-a)\s){_WORD}""",
        rf"""((?<![\w-])openssl\s{_WORDS}-pass(?:in|out)?\spass:)\S+""",
        rf"((?<![\w-])(?:ENV|set\s-\w{{1,5}})\s{_NAME}\s)\S+",
        # sentences of services and libraries
        rf"""(\bapi[ _-]?key\s(?:\w{{1,12}}\s){{0,2}}?(?:provided|given|received|used)\s?:\s?){_WORD}""",
        r"""(\b(?:api[ _-]?key|passw(?:or)?d|passphrase)\s["'])[^"'\s]{4,}(?=["'])""",
        r"""(\b(?:api|access|secret|auth)[ -](?:key|token)\s{0,3}(?:is|was|=|:)\s{0,3})(?=[^\s\d]*\d)[\w.~+/=-]{8,}""",
        rf"""(<{_NAME}>)[^<]+(?=</)""",
        # an address that is itself a secret
        r"(\bhttps?://hooks\.slack\.com/(?:services|workflows|triggers)/)[\w/-]+",
        r"(\bhttps?://(?:\w{1,20}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/)[\w/-]+",
        r"(\bhttps?://[\w-]{1,60}\.webhook\.office\.com/)[\w@/-]+",
        r"(\bhttps?://api\.telegram\.org/(?:file/)?bot)[\w:-]+",
        # percent-encoded, as a part of an address within an address
        rf"((?<![\w.-])(?:{_NAME}|{_SHORT})%(?:25)?3D)(?:[^\s\"'&%]|%(?!(?:25)?26)[0-9A-F]{{2}})+",
        rf"((?<![\w.-])(?:{_NAME}|{_SHORT})%22%3A(?:%20)?%22)(?:[^\s\"'&%]|%(?!22)[0-9A-F]{{2}})+",
        r"(\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]*:)[^/\s@]+(?=@)",
        r"""(\b(?:git\+)?https?://)[^/\s:@"']+:?(?=@)""",
    )
)
# Secrets of known formats: tokens of the hub, GitHub, Slack, Google, npm and usual APIs, JSON Web Tokens, private keys.
_FORMS = (
    re.compile(r"\b(?:hf|ghp|gho|ghs|ghu|ghr|github_pat|sk|nvapi|glpat|dckr_pat|GOCSPX|gsk|r8)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(
        r"\b(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-AgEI[A-Za-z0-9_-]{16,}"
    ),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_.-]{16,}|\bAKIA[A-Z0-9]{16}\b"),
    re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}"),
    re.compile(r"\b(?:ASIA[A-Z0-9]{16}|AGE-SECRET-KEY-1[A-Z0-9]{30,}|AGE-SECRET-KEY-PQ-1[A-Z0-9]{30,})", re.IGNORECASE),
    re.compile(r"\b(?:xai|pplx|tskey-[a-z]+|gl[a-z]{1,6}t|whsec|rk_live|dop_v1|hvs)[-_.][A-Za-z0-9_-]{16,}"),
    re.compile(
        r"-----BEGIN ([A-Z ]*)PRIVATE KEY( BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY( BLOCK)?-----|\Z)", re.DOTALL
    ),
)
# Names with "key" or "token" that are not secrets.
_HARMLESS = re.compile(r'"?(?:kv_tokens|tokens|tokens_per_second|api_key_file|hub_token_file)"?\s*[:=]', re.IGNORECASE)
# A number of tokens, as in many options of engines.
_COUNT = re.compile(r"[^=:\s]*tokens[\"']?\s*[:= ,]\s*[\"']?\d+[\"']?", re.IGNORECASE)
# Names of keys of a mapping, and of options, that mark a secret; with "_" for "-".
_SECRET_NAME = re.compile(r"passw|passphrase|secret|api_?keys?$|credential|authorization$|cookie$", re.IGNORECASE)
_PASS_NAME = re.compile(r"(?:^|_)(?:pass|pwd)$", re.IGNORECASE)
_TOKEN_NAME = re.compile(r"token$", re.IGNORECASE)


def is_secret(name: str, value: Any) -> bool:
    """Whether a value is a secret by its name: any text, or for "token" a text that is not a number."""
    if not isinstance(value, str) or not value:
        return False
    spelled = name.replace("-", "_")
    counts = value.replace(".", "").isdigit()
    if _PASS_NAME.search(spelled):
        return not value.startswith("/")  # as PWD, the folder of a shell
    return bool(_SECRET_NAME.search(spelled)) or (not counts and bool(_TOKEN_NAME.search(spelled)))


def secret_texts(name: str, value: Any) -> Iterator[str]:
    """The texts of a value that is a secret by its name: the value itself, or each item of a list."""
    for text in value if isinstance(value, (list, tuple)) else (value,):
        if is_secret(name, text):
            yield text
            yield from text.split(",") if "," in text and re.fullmatch(_LIST, name.lstrip("-"), re.IGNORECASE) else ()


def _secret_words(words: Sequence[Any]) -> Iterator[int]:
    """The positions of words of a command line that are values of secret options; API keys may have several."""
    option = ""
    for index, word in enumerate(words):
        if isinstance(word, str) and word.startswith("-"):
            option = word
        elif is_secret(option, word):
            yield index
            option = option if re.fullmatch(f"--{_LIST}", option, re.IGNORECASE) else ""
        else:
            option = ""


def secrets_within(value: Any) -> Iterator[str]:
    """Every text under the name of a secret: in mappings and command lines, at any depth."""
    if isinstance(value, dict):
        for key, kept in value.items():
            yield from secret_texts(str(key), kept)
            yield from secrets_within(kept)
    elif isinstance(value, (list, tuple)):
        for index in _secret_words(value):
            yield value[index]
            yield from value[index].split(",") if "," in value[index] else ()
        for kept in value:
            yield from secrets_within(kept)


class Redactor:
    """Redacts texts, and values that contain texts; `secrets` are known by value."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spelled = {
            form
            for secret in secrets
            if len(secret) >= LEAST_LENGTH
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        }
        self.known = sorted(spelled, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets, printable: a colour code within a secret must not hide it."""
        text = printable(text)
        for secret in self.known:
            text = text.replace(secret, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        return "\n".join(_line(line) for line in _blocks(text.split("\n")))

    def value(self, value: Any) -> Any:
        """The same value without secrets: frozen dataclasses, mappings, lists and tuples, named or not, with all texts.

        Texts under a key that names a secret, and the values of such options, are always redacted.
        """
        # a fleet's values repeat the same few texts
        return _walk(value, cache(self.text))


def _walk(value: Any, text: Callable[[str], str], name: str = "") -> Any:
    """name: the key of the value."""
    if isinstance(value, str):
        return REDACTED if is_secret(name, value) else text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _walk(getattr(value, field.name), text) for field in fields(value)})
    if isinstance(value, dict):
        return {text(str(key)): _walk(kept, text, str(key)) for key, kept in value.items()}
    if isinstance(value, (list, tuple)):
        words = [_walk(kept, text, name) for kept in value]
        for index in _secret_words(value):
            words[index] = REDACTED
        return type(value)(*words) if hasattr(value, "_fields") else type(value)(words)
    return value


# A key of YAML whose value stands on the next lines, and the name of a variable whose value does; lines of a journal
# begin with "... program[1]: ".
_PREFIX = r"((?:.{0,120}?\]:)?)"
_OPENS = re.compile(
    rf"""{_PREFIX}(\s*)(?:-\s+)?["']?(?:{_SURE}|{_MANY}|{_BEFORE}token|{_SHORT})["']?\s?:\s*(?:[|>][+-]?)?\s*""",
    re.IGNORECASE,
)
_VARIABLE = re.compile(rf"""{_PREFIX}(\s*)(?:-\s+)?name:\s{{1,9}}["']?{_NAME}["']?\s*""", re.IGNORECASE)
_ITEM = re.compile(rf"{_PREFIX}(\s*)(-\s+)?(\S.*)")
_PAIR = re.compile(r"""["']?[\w.-]{1,100}["']?:(?:\s|$)""")


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """The lines, without the values that stand below the name of a secret."""
    opened: int | None = None
    variable = False
    for line in lines:
        here = _ITEM.match(line)
        if opened is not None and here:
            indent, item, rest = len(here[2]), here[3] or "", here[4]
            if (indent > opened or (item and indent >= opened)) and not _PAIR.match(rest) and rest[0] not in "{[#":
                yield f"{here[1]}{here[2]}{item}{REDACTED}"
                continue
            opened = None
        if variable and here and (value := re.match(r"value:\s+", here[4])):
            yield f"{line[: here.start(4)]}{value[0]}{REDACTED}"
            variable = False
            continue
        found = _OPENS.fullmatch(line)
        opened = len(found[2]) if found else opened if opened is not None and not here else None
        variable = bool(_VARIABLE.fullmatch(line))
        yield line


def _line(line: str) -> str:
    for pattern in _NAMED:
        line = pattern.sub(_replaced, line)
    return line


def _replaced(match: re.Match[str]) -> str:
    name, whole = match[1], match[0]
    known = whole[len(name) :].strip("\"'") in (REDACTED, REDACTED[:-1])
    if known or _HARMLESS.match(name.lstrip("-")) or _COUNT.fullmatch(whole):
        return whole
    mark = whole[-1] if name[0] in "\"'" and name.rstrip(" [").endswith(":") and whole[-1] in "\"'" else ""
    return f"{name}{mark}{REDACTED}{mark}"
