# SPDX-License-Identifier: Apache-2.0
"""Metrics as an ASGI application."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Mapping
from urllib.parse import parse_qs

from .registry import REGISTRY

_Application = Callable[[Mapping[str, Any], Callable[..., Any], Callable[..., Any]], Awaitable[None]]


def make_asgi_app(registry: Any = REGISTRY, disable_compression: bool = False) -> _Application:
    """An ASGI application that answers with the registry's metrics."""
    from ._serve import _bake_output

    async def prometheus_app(
        scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        assert scope.get("type") == "http"
        params = parse_qs(scope.get("query_string", b"").decode("utf8"))
        accept, encoding = _header(scope, b"accept"), _header(scope, b"accept-encoding")
        status, headers, output = _bake_output(registry, accept, encoding, params, disable_compression)
        request = await receive()
        if request.get("type") != "http.request":
            return
        await send(
            {
                "type": "http.response.start",
                "status": int(status.split(" ")[0]),
                "headers": [(name.encode("utf8"), value.encode("utf8")) for name, value in headers],
            }
        )
        await send({"type": "http.response.body", "body": output})

    return prometheus_app


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    return ",".join(value.decode("utf8") for key, value in scope.get("headers") or () if key.lower() == name)
