# SPDX-License-Identifier: Apache-2.0
"""Names beyond Prometheus's old character set: quoted, or written with what that set has."""

from __future__ import annotations

from typing import Callable

from ..validation import _is_valid_legacy_labelname, _is_valid_legacy_metric_name

ALLOWUTF8 = "allow-utf-8"
UNDERSCORES = "underscores"
DOTS = "dots"
VALUES = "values"

_Allowed = Callable[[str, int], bool]


def escape_text(text: str) -> str:
    """The text as it stands between quotes: backslash, newline and quote are escaped."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def escape_metric_name(s: str, escaping: str = UNDERSCORES) -> str:
    """A metric name by the scheme."""
    return _escape_name(s, escaping, _is_valid_legacy_metric_name, _is_legacy_metric_rune)


def escape_label_name(s: str, escaping: str = UNDERSCORES) -> str:
    """A label name by the scheme."""
    return _escape_name(s, escaping, _is_valid_legacy_labelname, _is_legacy_labelname_rune)


def _escape_name(name: str, escaping: str, is_valid: Callable[[str], bool], allowed: _Allowed) -> str:
    if not name or (escaping in (UNDERSCORES, VALUES, ALLOWUTF8) and is_valid(name)):
        return name
    escaped = _escape(name, escaping, allowed)
    return f'"{escaped}"' if escaping == ALLOWUTF8 else escaped


def _escape(s: str, escaping: str, valid_rune_fn: _Allowed) -> str:
    if escaping == ALLOWUTF8:
        return escape_text(s)
    runes = {UNDERSCORES: _to_underscore, DOTS: _to_dots, VALUES: _to_value}.get(escaping)
    if runes is None:
        return s
    escaped = "".join(runes(rune, valid_rune_fn(rune, place)) for place, rune in enumerate(s))
    return "U__" + escaped if escaping == VALUES else escaped


def _to_underscore(rune: str, valid: bool) -> str:
    return rune if valid else "_"


def _to_dots(rune: str, valid: bool) -> str:
    if rune == ".":
        return "_dot_"
    return rune if valid and rune != "_" else "__"


def _to_value(rune: str, valid: bool) -> str:
    if rune == "_":
        return "__"
    if valid:
        return rune
    if 0xD800 <= ord(rune) <= 0xDFFF:
        return "_FFFD_"
    return f"_{ord(rune):x}_"


def _is_legacy_metric_rune(b: str, i: int) -> bool:
    return b == ":" or _is_legacy_labelname_rune(b, i)


def _is_legacy_labelname_rune(b: str, i: int) -> bool:
    return b.isascii() and (b.isalpha() or b == "_" or (b.isdigit() and i > 0))
