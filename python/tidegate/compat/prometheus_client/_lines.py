# SPDX-License-Identifier: Apache-2.0
"""The lines of both text formats, cut into names, labels and numbers."""

from __future__ import annotations

import re
from typing import Optional, Union

from .validation import _is_valid_legacy_metric_name, _validate_labelname, _validate_metric_name

_WORD = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_QUOTED = r'"(?:[^"\\]|\\.)*"'

NAME = re.compile(_WORD)
#: The subject of a comment with a meaning: a name, quoted or not, and the text behind it.
ABOUT = re.compile(rf"({_QUOTED}|\S+)(?:\s+(.*))?$", re.DOTALL)

_TERM = re.compile(rf"\s*(?:({_WORD}|{_QUOTED})\s*=\s*)?({_QUOTED})\s*")
_GAP = re.compile(r"\s*")
_ESCAPE = re.compile(r'\\([\\n"])')


def unescape(text: str) -> str:
    """Backslash, newline and quote, where they were escaped."""
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def unquote(token: str) -> str:
    """A name, which must be quoted unless it is of the old character set."""
    if token.startswith('"'):
        if not re.fullmatch(_QUOTED, token):
            raise ValueError(f"missing close quote: {token}")
        return unescape(token[1:-1])
    if not _is_valid_legacy_metric_name(token):
        raise ValueError(f"invalid metric name: {token}")
    return token


def labels(line: str, at: int, strict: bool) -> tuple[Optional[str], dict[str, str], int]:
    """The metric's name (if it is within the braces), the labels, and the place behind the closing brace.

    `at` is the place behind the opening one. Unless `strict`, a comma may lead and may trail.
    """
    name: Optional[str] = None
    found: dict[str, str] = {}
    at = _skip(line, at)
    if not strict and line.startswith(",", at):
        at = _skip(line, at + 1)
    needs_more = False
    while needs_more or not line.startswith("}", at):
        term = _TERM.match(line, at)
        if term is None:
            raise ValueError(f"Invalid labels: {line}")
        key = "__name__" if term[1] is None else unquote(term[1])
        value = unescape(term[2][1:-1])
        if key == "__name__":
            if name is not None:
                raise ValueError(f"metric name specified more than once: {line}")
            name = value
            _validate_metric_name(name)
        else:
            _validate_labelname(key)
            if key in found:
                raise ValueError(f"invalid line, duplicate label name: {line}")
            found[key] = value
        at = term.end()
        needs_more = False
        if line.startswith(",", at):
            at = _skip(line, at + 1)
            needs_more = strict
        elif not line.startswith("}", at):
            raise ValueError(f"Invalid labels: {line}")
    return name, found, at + 1


def _skip(line: str, at: int) -> int:
    gap = _GAP.match(line, at)
    return gap.end() if gap else at


def one_name(line: str, before: str, within: Optional[str]) -> str:
    """The metric's name, which is before the braces or within."""
    if (before == "") == (within is None):
        raise ValueError(f"one metric name is meant: {line}")
    return before or within or ""


def number(text: str) -> Union[int, float]:
    """A number: whole if it is written so."""
    if "_" in text or not text.isascii():
        raise ValueError(f"Invalid value: {text!r}")
    try:
        return int(text)
    except ValueError:
        return float(text)
