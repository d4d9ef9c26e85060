"""Quoting for systemd: whatever the words are, the service gets exactly those."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rigup.systemd.quoting import EXPANDED, command_line, credential, environment_line

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"'}


def read_words(line: str) -> list[str]:
    """What systemd makes of ExecStart=: quotes, C escapes, `%%` and `$$`. Stands for systemd.syntax(7)."""
    words: list[str] = []
    data = bytearray()
    quoted = inside = False
    index = 0
    while index < len(line):
        char = line[index]
        if char == '"':
            quoted, inside = not quoted, True
        elif char == " " and not quoted:
            words.append(data.decode())
            data, inside = bytearray(), False
        elif char == "\\":
            index += 1
            if line[index] == "x":
                data.append(int(line[index + 1 : index + 3], 16))
                index += 2
            else:
                data += ESCAPED[line[index]].encode()
        elif char in "%$":
            assert line[index + 1] == char, f"a bare {char} would be expanded"
            data += char.encode()
            index += 1
        else:
            data += char.encode()
            inside = True
        index += 1
    assert not quoted
    return [*words, data.decode()] if inside or data else words


@given(st.lists(TEXT.filter(lambda text: not any(name in text for name in EXPANDED)), min_size=1))
@example(['{"a": "b c"}', "100%", "$HOME", "${HOME}", "a;b", ";", "", "-", "line\nbreak", 'quo"te', "back\\slash"])
@example(["%h", "%%", "$$", "tab\there", "\x7f", "ünï"])
def test_words_survive(words: list[str]) -> None:
    line = command_line(("/bin/program", *words))
    assert "\n" not in line
    assert read_words(line) == ["/bin/program", *words]


@given(TEXT)
def test_variables_survive(value: str) -> None:
    line = environment_line("NAME", value)
    assert "\n" not in line
    # `$` means nothing in Environment=, so the reader for commands is given what it would be there.
    assert read_words(line.replace("$", "$$")) == [f"NAME={value}"]


def test_only_the_folders_that_systemd_makes_are_expanded() -> None:
    line = command_line(("/bin/program", "${CREDENTIALS_DIRECTORY}/api-key", "${HOME}/api-key"))
    assert line == '/bin/program "${CREDENTIALS_DIRECTORY}/api-key" "$${HOME}/api-key"'


def test_plain_words_stay_plain() -> None:
    line = command_line(("/opt/x/bin/vllm", "serve", "--port", "8000", "--tensor-split", "16,16,16,15"))
    assert line == "/opt/x/bin/vllm serve --port 8000 --tensor-split 16,16,16,15"


def test_a_credential_keeps_percent_signs_quotes_and_lines() -> None:
    text = '[a]\nkey = 5% of "it" \\ é\n'
    value = credential("models.ini", text)
    assert value == 'models.ini:[a]\\nkey = 5% of "it" \\\\ é\\n'
    assert credential("x", "\x07") == "x:\\x07"
