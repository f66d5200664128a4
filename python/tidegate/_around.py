"""Instruments around code: as context managers and as decorators of functions, sync or async."""

from __future__ import annotations

import functools
import inspect
from types import TracebackType
from typing import Any, Callable, ContextManager, Literal, Optional, TypeVar, Union, cast

from tidegate._tidegate import Timer

__all__ = ["ExceptionCounter", "InprogressTracker", "Timer", "around"]

F = TypeVar("F", bound=Callable[..., Any])
_Exceptions = Union[type[BaseException], tuple[type[BaseException], ...]]


def around(function: F, make: Callable[[], ContextManager[Any]]) -> F:
    """`function` with a context of its own around each call; a coroutine function is awaited within."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            with make():
                return await function(*args, **kwargs)

        return cast(F, wrapped_async)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast(F, wrapped)


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
