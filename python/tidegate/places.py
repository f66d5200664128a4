# SPDX-License-Identifier: Apache-2.0
"""Registries by a word, so that one setting of a program says where its metrics go."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Callable, Optional
from urllib.parse import urlsplit

from tidegate.registries import Fanout, Null, Otel, Prometheus, Registry, Shm

__all__ = ["registry"]

#: Where metrics go when the program does not say.
VARIABLE = "TIDEGATE_REGISTRY"


def registry(place: Optional[str] = None) -> Registry:
    """The registry of a place; without one, of the environment's `TIDEGATE_REGISTRY`, else `prometheus`.

    ======================================  =================================================================
    `prometheus`, `prometheus://host:port`  `Prometheus()`; with an address it serves its page there
    `shm`, `shm:/dev/shm/metrics`           `Shm()`, by the environment or with this directory
    `otlp`                                  `Otel()`, by the environment
    `otlp://host:port`, `otlps://...`       `Otel(...)`: gRPC, plain or with TLS
    `otlp+http://...`, `otlp+https://...`   `Otel(...)`: HTTP with protobuf
    `null`                                  `Null()`
    several of them with commas             `Fanout([...])`
    ======================================  =================================================================

    `ValueError` for anything else.
    """
    place = place or os.environ.get(VARIABLE) or "prometheus"
    registries = [_one(part.strip()) for part in place.split(",")]
    return registries[0] if len(registries) == 1 else Fanout(registries)


def _one(place: str) -> Registry:
    scheme, _, rest = place.partition(":")
    make = _SCHEMES.get(scheme)
    if make is None:
        near = get_close_matches(scheme, _SCHEMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown registry {place!r}: use one of {', '.join(_SCHEMES)}{hint}")
    return make(rest)


def _prometheus(rest: str) -> Registry:
    made = Prometheus()
    if rest:
        address = urlsplit(rest)
        if not address.hostname or address.port is None:
            raise ValueError(f"prometheus:{rest} has no host and port: write prometheus://host:port")
        made.serve(address.port, address.hostname)
    return made


def _shm(rest: str) -> Registry:
    # Like a URL's, a path may have an empty host before it.
    return Shm(rest.removeprefix("//") or None)


def _otlp(scheme: str, protocol: str) -> Callable[[str], Registry]:
    return lambda rest: Otel(f"{scheme}:{rest}", protocol=protocol) if rest else Otel()


def _null(rest: str) -> Registry:
    if rest:
        raise ValueError(f"null:{rest}: null takes no address")
    return Null()


_SCHEMES: dict[str, Callable[[str], Registry]] = {
    "prometheus": _prometheus,
    "shm": _shm,
    "otlp": _otlp("http", "grpc"),
    "otlps": _otlp("https", "grpc"),
    "otlp+http": _otlp("http", "http/protobuf"),
    "otlp+https": _otlp("https", "http/protobuf"),
    "null": _null,
}
