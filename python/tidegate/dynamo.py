# SPDX-License-Identifier: Apache-2.0
"""A bridge into Dynamo: an endpoint's `/metrics` shows what a registry holds.

    from tidegate.dynamo import bridge

    bridge(endpoint, registry)

Dynamo's Python bindings take metrics as text, made at each scrape.
"""

from __future__ import annotations

from typing import Any, Callable, Union

from tidegate._report import LOGGER
from tidegate.registries import Registry

__all__ = ["bridge", "page"]


def page(source: Any) -> str:
    """The text of a registry: of the SDK, of `prometheus_client` or its drop-in, or of a function that gives text."""
    if isinstance(source, Registry):
        return source.expose()
    if callable(source):
        text: Union[str, bytes] = source()
        return text.decode() if isinstance(text, bytes) else text
    # Both clients write what the other's registries collect.
    from tidegate.compat.prometheus_client import generate_latest

    return generate_latest(source).decode()


def bridge(endpoint: Any, *sources: Any) -> Callable[[], str]:
    """Has the endpoint's process show `sources` whenever it is scraped; gives the callback that was registered.

    Dynamo adds the text as it is: names must not be those of its own metrics. A source that fails is omitted from
    that page; it is logged the first time.
    """
    failed: set[int] = set()

    def callback() -> str:
        pages = []
        for number, source in enumerate(sources):
            try:
                pages.append(page(source))
            except Exception:
                if number not in failed:
                    failed.add(number)
                    LOGGER.exception("a source of Dynamo's page failed; it is omitted")
        return "".join(pages)

    endpoint.metrics.register_prometheus_expfmt_callback(callback)
    return callback
