# SPDX-License-Identifier: Apache-2.0
"""Metrics as a handler of aiohttp's server."""

from __future__ import annotations

from typing import Any, Awaitable, Callable

from aiohttp import web  # type: ignore[import-not-found]

from .._serve import _bake_output
from ..registry import REGISTRY

__all__ = ["make_aiohttp_handler"]


def make_aiohttp_handler(
    registry: Any = REGISTRY, disable_compression: bool = False
) -> Callable[[Any], Awaitable[Any]]:
    """A handler that answers with the registry's metrics."""

    async def prometheus_handler(request: Any) -> Any:
        params = {name: request.query.getall(name) for name in request.query}
        accept = ",".join(request.headers.getall("Accept", []))
        # aiohttp compresses what it sends by itself.
        status, headers, output = _bake_output(registry, accept, "", params, True)
        response = web.Response(status=int(status.split(" ")[0]), headers=dict(headers), body=output)
        if not disable_compression:
            response.enable_compression()
        return response

    return prometheus_handler
