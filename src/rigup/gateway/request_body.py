r"""What a request's body must be, so that an engine cannot read another model in it than HAProxy does. Pure.

Engines take the last `model` of several and read `"mod\u0065l"` as the same key; HAProxy's json_query takes the first
one and compares keys as they are written. Python's json also takes UTF-16. So a body must have one reading: an object,
with one `model` at its first level, which is text, and keys beside it of ASCII without escapes. What is nested may be
anything. It is enough to find where each value ends, since engines refuse what is not JSON. The same expression that
holds a body to that finds the model.
"""

from __future__ import annotations

# HAProxy has PCRE2 in Debian and Ubuntu. Nothing here goes back, because of which it needs no more time for hostile
# bodies than for others; each level of nesting takes of PCRE2's stack, which suffices for 500 and more.
_DEFINITIONS = (
    r"(?<gap>[ \t\r\n]*+)",
    r'(?<text>"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+")',
    r'(?<nested>(?>[[{](?:[^][{}"\x00]++|(?&text)|(?&nested))*+[]}]))',
    r"(?<plain>[-+.0-9A-Za-z]++)",
    r"(?<colon>(?&gap):(?&gap))",
    r'(?<other>(?&gap)"(?!model")[ !#-\[\]-~]*+"(?&colon)(?>(?&text)|(?&nested)|(?&plain))(?&gap))',
    # HAProxy looks names up as far as their first null, which \u0000 is
    r'(?<name>"(?:[^"\\\x00-\x1f]++|\\(?!u00[01])[^\x00-\x1f])*+")',
)
ONE_MODEL = (
    f"(?(DEFINE){''.join(_DEFINITIONS)})"
    r'\A(?&gap)\{(?:(?&other),)*+(?&gap)"model"(?&colon)((?&name))(?&gap)(?:,(?&other))*+\}(?&gap)\z'
)
"""A regular expression of PCRE2."""
MODEL = len(_DEFINITIONS) + 1
"""The number of its group that has the model, as JSON's text."""
