# SPDX-License-Identifier: Apache-2.0
"""Decorating functions so that they keep their name, documentation and signature."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, TypeVar, cast

__all__ = ["decorate", "getargspec", "getfullargspec"]

_F = TypeVar("_F", bound=Callable[..., Any])


def decorate(func: _F, caller: Callable[..., Any]) -> _F:
    """`func` with each call passed to ``caller(func, *args, **kwargs)``, whose answer the call gives."""

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return caller(func, *args, **kwargs)

    return cast(_F, decorated)


def getfullargspec(func: Callable[..., Any]) -> inspect.FullArgSpec:
    """The arguments of a function, of the one inside if it is decorated."""
    return inspect.getfullargspec(inspect.unwrap(func))


def getargspec(func: Callable[..., Any]) -> tuple[Any, ...]:
    """The names, `*`, `**` and defaults of a function's arguments, of the one inside if it is decorated."""
    return tuple(getfullargspec(func)[:4])
