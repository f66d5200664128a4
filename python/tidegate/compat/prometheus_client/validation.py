# SPDX-License-Identifier: Apache-2.0
"""Names that are allowed: any UTF-8, or Prometheus's old character set when asked for."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Mapping

METRIC_NAME_RE = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
METRIC_LABEL_NAME_RE = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")
RESERVED_METRIC_LABEL_NAME_RE = re.compile(r"^__.*$")

#: Characters that an exemplar's labels may have together.
EXEMPLAR_RUNES = 128

_legacy_validation = os.environ.get("PROMETHEUS_LEGACY_NAME_VALIDATION", "").lower() in ("true", "1", "t")


def get_legacy_validation() -> bool:
    """Whether only the old character set is allowed."""
    return _legacy_validation


def disable_legacy_validation() -> None:
    """Allows names of any UTF-8 from now on."""
    global _legacy_validation
    _legacy_validation = False


def enable_legacy_validation() -> None:
    """Allows only the old character set from now on."""
    global _legacy_validation
    _legacy_validation = True


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_valid_legacy_metric_name(name: str) -> bool:
    return METRIC_NAME_RE.match(name) is not None


def _is_valid_legacy_labelname(name: str) -> bool:
    return METRIC_LABEL_NAME_RE.match(name) is not None and not name.startswith("__")


def _validate_metric_name(name: str) -> None:
    if not name:
        raise ValueError("metric name cannot be empty")
    if not _is_utf8(name) or (_legacy_validation and not METRIC_NAME_RE.match(name)):
        raise ValueError("invalid metric name " + ascii(name)[1:-1])


def _validate_labelname(name: str) -> None:
    if not _is_utf8(name) or (_legacy_validation and not METRIC_LABEL_NAME_RE.match(name)):
        raise ValueError("Invalid label metric name: " + ascii(name)[1:-1])
    if RESERVED_METRIC_LABEL_NAME_RE.match(name):
        raise ValueError("Reserved label metric name: " + name)


def _validate_labelnames(metric: Any, labelnames: Iterable[str]) -> tuple[str, ...]:
    names = tuple(labelnames)
    for name in names:
        _validate_labelname(name)
        if name in metric._reserved_labelnames:
            # The words are prometheus_client's.
            raise ValueError("Reserved label methe fric name: " + name)
    return names


def _validate_exemplar(exemplar: Mapping[str, str]) -> None:
    for name in exemplar:
        _validate_labelname(name)
    runes = sum(len(name) + len(value) for name, value in exemplar.items())
    if runes > EXEMPLAR_RUNES:
        raise ValueError(f"Exemplar labels have {runes} UTF-8 characters, exceeding the limit of {EXEMPLAR_RUNES}")
