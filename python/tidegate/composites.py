# SPDX-License-Identifier: Apache-2.0
"""Composites: what instruments say over a window, asked for, waited for, or told by a callback."""

from __future__ import annotations

import os
from typing import AsyncIterator, Callable, Iterator, Optional

from tidegate import _tidegate as native
from tidegate.instruments import Callback

__all__ = ["Composite", "Watch"]

#: Seconds that a wait sleeps at most in one piece, so that it can be given up.
_PATIENCE = 0.25

#: Composites that were copied by a fork.
_OF_PARENTS: list[native.Composite] = []


class Watch:
    """The changes of a composite, for a `for` or an `async for`.

    Each item holds all groups. Changes between two waits are not kept: the next item is the newest.
    """

    def __init__(self, watcher: native.Watcher) -> None:
        self._watcher = watcher

    def next(self, timeout: float) -> Optional[list[native.Snapshot]]:
        """The next item, or None after `timeout` seconds without one."""
        return self._watcher.wait(timeout)

    def __iter__(self) -> Iterator[list[native.Snapshot]]:
        while True:
            news = self._watcher.wait(_PATIENCE)
            if news is not None:
                yield news

    async def __aiter__(self) -> AsyncIterator[list[native.Snapshot]]:
        import asyncio

        while True:
            news = await asyncio.to_thread(self._watcher.wait, _PATIENCE)
            if news is not None:
                yield news


class Composite:
    """Min, mean, max, sum, rate and quantiles of instruments over a window, at any instant.

    It sees what is recorded from its making on.
    """

    def __init__(self, build: Callable[[bool], native.Composite]) -> None:
        self._build = build
        self._made = build(False)
        self._process = os.getpid()

    @property
    def _native(self) -> native.Composite:
        """The composite of this process: a child of `fork` begins with one that has seen nothing."""
        process = os.getpid()
        if self._process != process:
            # The parent's watch is a copy here that no caller uses. Dropping it could wait for a thread of the parent.
            _OF_PARENTS.append(self._made)
            self._made, self._process = self._build(True), process
        return self._made

    def __repr__(self) -> str:
        return f"<tidegate.Composite {self.name!r}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    def get(self, **labels: str) -> native.Snapshot:
        """The current state of the group with these labels (`KeyError` if there is none), or of the first group."""
        snapshot = self._native.get(list(labels.items()) if labels else None)
        if snapshot is None:
            raise KeyError(labels)
        return snapshot

    def all(self) -> list[native.Snapshot]:
        """The current state of every group."""
        return self._native.all()

    def on_change(
        self,
        callback: Callback,
        *,
        above: Optional[float] = None,
        below: Optional[float] = None,
        moved: Optional[float] = None,
        hysteresis: float = 0.0,
        min_interval: float = 0.0,
    ) -> native.Subscription:
        """Calls back when a group's value crosses a threshold, moves so far or, without either, changes.

        On a thread of its own; what the callback raises is logged once and counted. Until the subscription is
        closed or collected. Seconds.
        """
        trigger = native.Trigger(
            above=above, below=below, moved=moved, hysteresis=hysteresis, min_interval=min_interval
        )
        return self._native.on_change(callback, trigger)

    def watch(self) -> Watch:
        """Waits for what it says next."""
        return Watch(self._native.watch())
