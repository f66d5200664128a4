# SPDX-License-Identifier: Apache-2.0
"""Instruments around code: as context managers and as decorators of functions, sync or async."""

from __future__ import annotations

import functools
import inspect
from contextlib import aclosing
from types import TracebackType
from typing import Any, AsyncIterator, Callable, ContextManager, Generator, Literal, Optional, TypeVar, Union, cast

from tidegate._tidegate import Timer

__all__ = ["ExceptionCounter", "InprogressTracker", "Timer", "around"]

F = TypeVar("F", bound=Callable[..., Any])
_Exceptions = Union[type[BaseException], tuple[type[BaseException], ...]]


def around(function: F, make: Callable[[], ContextManager[Any]]) -> F:
    """`function` with a context of its own around each call: around all of a coroutine's or a generator's run."""
    return cast(F, functools.wraps(function)(_wrapped(function, make)))


def _wrapped(function: Callable[..., Any], make: Callable[[], ContextManager[Any]]) -> Callable[..., Any]:
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        with make():
            return await function(*args, **kwargs)

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with make():
            async with aclosing(function(*args, **kwargs)) as items:
                async for item in items:
                    yield item

    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with make():
            return (yield from function(*args, **kwargs))

    def call(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    if inspect.iscoroutinefunction(function):
        return coroutine
    if inspect.isasyncgenfunction(function):
        return stream
    return generator if inspect.isgeneratorfunction(function) else call


class ExceptionCounter:
    """Counts exceptions of a type that leave a block or a function."""

    def __init__(self, counter: Any, exception: _Exceptions) -> None:
        self._counter = counter
        self._exception = exception

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        typ: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]:
        if isinstance(value, self._exception):
            self._counter.inc()
        return False

    def __call__(self, f: F) -> F:
        return around(f, lambda: self)


class InprogressTracker:
    """Counts a block or a function while it runs."""

    def __init__(self, gauge: Any) -> None:
        self._gauge = gauge

    def __enter__(self) -> None:
        self._gauge.inc()

    def __exit__(
        self,
        typ: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._gauge.dec()

    def __call__(self, f: F) -> F:
        return around(f, lambda: self)
