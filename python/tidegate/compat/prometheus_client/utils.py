# SPDX-License-Identifier: Apache-2.0
"""Numbers as Prometheus writes them."""

from __future__ import annotations

import math
from typing import SupportsFloat, Union

INF = float("inf")
MINUS_INF = float("-inf")
NaN = float("nan")


def floatToGoString(d: Union[SupportsFloat, str]) -> str:
    """The float as Go prints it, as far as bucket bounds need it."""
    number = float(d)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    text = repr(number)
    whole, dot, fraction = text.partition(".")
    # Python writes an exponent from 1e16 on, Go from 1e6 on.
    if not dot or number <= 0 or len(whole) <= 6:
        return text
    digits = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0.")
    return f"{digits}e+{len(whole) - 1:02d}"


def parse_version(version_str: str) -> tuple[Union[int, str], ...]:
    """`1.0.0` as `(1, 0, 0)`; parts that are not numbers stay text."""
    return tuple(int(part) if part.isdecimal() else part for part in version_str.split("."))
