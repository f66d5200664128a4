# SPDX-License-Identifier: Apache-2.0
"""Where values live: a file of this process when a directory is set in the environment, else memory."""

from __future__ import annotations

import fcntl
import glob
import os
import threading
import warnings
from typing import Any, Callable, Optional, Sequence

from tidegate._tidegate import Family, Store

#: The directory of all processes' files; the first that is set counts.
DIRECTORY_VARIABLES = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir", "TIDEGATE_CELLS_DIR")

#: prometheus_client knows no bound: these only keep a mistake from taking the machine.
_MAX_SERIES = 200_000
_MAX_BYTES = 1 << 28

#: A file that cleaning hooks of servers (``rm *.db``) find. Readers of prometheus_client take it for an empty one of theirs.
MARKER = "tidegate.db"
#: Says that there was a marker: without it, a directory of an older version or of the SDK has none either.
_MARKED = ".tidegate-marked"

_stores: dict[str, Store] = {}
_lock = threading.Lock()
# A thread that is making a store while another one forks would leave the lock taken in the child.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def directory() -> Optional[str]:
    """Where the processes' files are; None: this process is on its own."""
    current, old = DIRECTORY_VARIABLES[:2]
    if os.environ.get(old) and not os.environ.get(current):
        os.environ[current] = os.environ[old]
        warnings.warn(f"{old} is deprecated: {current} is meant", DeprecationWarning, stacklevel=3)
    return next((os.environ[name] for name in DIRECTORY_VARIABLES if os.environ.get(name)), None)


def family(
    name: str,
    documentation: str,
    unit: str,
    kind: str,
    labels: Sequence[str],
    *,
    mode: str = "all",
    bounds: Sequence[float] = (),
) -> Family:
    """The family that an instrument's series belong to.

    Instruments of one name share their values in a file. In memory each has its own, as each may be in another registry.
    """

    def make(store: Store) -> Family:
        return store.family(name, documentation, unit, kind, list(labels), mode=mode, bounds=list(bounds))

    place = directory()
    if place is None:
        return make(_memory())
    try:
        return make(_shared(place))
    except ValueError as error:
        warnings.warn(f"{error}: the values of this one stay in this process", RuntimeWarning, stacklevel=4)
        return make(_memory())


def prepare(place: str) -> None:
    """Makes a directory clean again where a hook has deleted its `*.db` files, and marks it for the next time.

    What dead processes counted goes then, as it would with prometheus_client; living processes keep their files.
    """
    marker = os.path.join(place, MARKER)
    if os.path.exists(marker):
        return
    try:
        with open(os.path.join(place, _MARKED), "ab") as marked:
            fcntl.flock(marked, fcntl.LOCK_EX)
            if os.path.exists(marker):
                return
            if marked.tell() > 0:
                _remove_dead(place)
            else:
                marked.write(b"1")
            with open(marker, "wb") as file:
                file.write(bytes(8))
    except OSError:
        pass  # A directory that can't be written needs no marker: no process cleans it.


def _remove_dead(place: str) -> None:
    """Removes the files of processes whose lock is free, and what was folded of earlier ones."""
    for path in glob.glob(os.path.join(glob.escape(place), "*.cells")):
        with open(path, "rb") as cells:
            try:
                fcntl.flock(cells, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            os.unlink(path)


def foreign_files(place: str) -> list[str]:
    """The `*.db` files of the real prometheus_client in a directory."""
    found = glob.glob(os.path.join(glob.escape(place), "*.db"))
    return sorted(path for path in found if os.path.basename(path) != MARKER)


def _memory() -> Store:
    return Store(None, max_series=_MAX_SERIES, max_bytes=_MAX_BYTES)


def _shared(place: str) -> Store:
    with _lock:
        store = _stores.get(place)
        if store is None:
            if place != os.environ.get(DIRECTORY_VARIABLES[-1]):
                prepare(place)
            store = _stores[place] = Store(place, max_series=_MAX_SERIES, max_bytes=_MAX_BYTES)
        return store


class MutexValue:
    """Kept for programs that assign it to `ValueClass`, which changes nothing."""


def MultiProcessValue(process_identifier: Callable[[], Any] = os.getpid) -> Any:
    """Kept for programs that assign `ValueClass`: a process is known by its pid and the time it started,
    so no identifier is needed and this changes nothing."""
    return MultiProcessValue


def get_value_class() -> Any:
    """Kept for programs that call it: what `ValueClass` is by default."""
    return MutexValue if directory() is None else MultiProcessValue


#: Kept for programs that assign it; see `MultiProcessValue`.
ValueClass: Any = MultiProcessValue


def close_all_multiprocess_files() -> None:
    """Kept for programs that call it; files close with their process."""
