# SPDX-License-Identifier: Apache-2.0
"""The files of prometheus_client (`*.db`), for programs that read or write them by hand.

The drop-in itself keeps values in cells. A file begins with its length in use (4 bytes, little endian, then 4 unused);
an entry is the length of a key (4 bytes), the key in UTF-8, 1 to 8 spaces so that what follows is at a multiple of 8, a
value and a time in seconds (8 bytes each, floating point).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import IO, Any, Iterator, Sequence

__all__ = ["MmapedDict", "mmap_key"]

_HEAD = 8
#: Bytes of a new file.
_INITIAL_MMAP_SIZE = 1 << 16

_LENGTH = struct.Struct("<i")
_NUMBERS = struct.Struct("<dd")

_Entry = tuple[str, float, float, int]


def mmap_key(
    metric_name: str, name: str, labelnames: Sequence[str], labelvalues: Sequence[str], help_text: str
) -> str:
    """The key of a series: the same for the same name and labels in whatever order they come."""
    labels = dict(zip(labelnames, labelvalues))
    return json.dumps([metric_name, name, labels, help_text], sort_keys=True)


def _padding(length: int) -> int:
    """Bytes between a key of this length in bytes and its value."""
    return 8 - (length + _LENGTH.size) % 8


def _entries(data: Any, used: int) -> Iterator[_Entry]:
    """Key, value, time and the place of the value of each entry; `RuntimeError` if the bytes are not such a file."""
    at = _HEAD
    while at < used:
        length = _LENGTH.unpack_from(data, at)[0]
        key_at = at + _LENGTH.size
        value_at = key_at + length + _padding(length)
        if length < 0 or value_at + _NUMBERS.size > used:
            raise RuntimeError("Read beyond file size detected, file is corrupted.")
        key = bytes(data[key_at : key_at + length]).decode("utf-8")
        yield (key, *_NUMBERS.unpack_from(data, value_at), value_at)
        at = value_at + _NUMBERS.size


class MmapedDict:
    """Values by key in a file that grows by doubling. One process writes; others read."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._file: IO[bytes] = open(filename, "rb" if read_mode else "a+b")
        size = os.fstat(self._file.fileno()).st_size
        if size == 0 and not read_mode:
            size = _INITIAL_MMAP_SIZE
            self._file.truncate(size)
        self._size = size
        self._access = mmap.ACCESS_READ if read_mode else mmap.ACCESS_WRITE
        self._m: Any = mmap.mmap(self._file.fileno(), size, access=self._access)
        self._used = _LENGTH.unpack_from(self._m, 0)[0]
        self._places: dict[str, int] = {}
        if self._used == 0:
            self._used = _HEAD
            if not read_mode:
                self._m[: _LENGTH.size] = _LENGTH.pack(self._used)
        else:
            self._places = {key: place for key, _, _, place in _entries(self._m, self._used)}

    @staticmethod
    def read_all_values_from_file(filename: str) -> Iterator[_Entry]:
        """Key, value, time and place of each value of a file, without a mapping of it."""
        with open(filename, "rb") as file:
            data = file.read()
        return _entries(data, _LENGTH.unpack_from(data, 0)[0])

    def read_all_values(self) -> Iterator[tuple[str, float, float]]:
        """Key, value and time of each value."""
        return ((key, value, time) for key, value, time, _ in _entries(self._m, self._used))

    def _init_value(self, key: str) -> None:
        encoded = key.encode("utf-8")
        padded = encoded + b" " * _padding(len(encoded))
        size = _LENGTH.size + len(padded) + _NUMBERS.size
        while self._used + size > self._size:
            self._size *= 2
            self._file.truncate(self._size)
            self._m = mmap.mmap(self._file.fileno(), self._size, access=self._access)
        at = self._used
        self._m[at : at + _LENGTH.size] = _LENGTH.pack(len(encoded))
        value_at = at + _LENGTH.size + len(padded)
        self._m[at + _LENGTH.size : value_at] = padded
        self._m[value_at : value_at + _NUMBERS.size] = _NUMBERS.pack(0.0, 0.0)
        self._used += size
        # Readers see an entry once it is whole. (`pack_into` writes zeros first, which a reader could see.)
        self._m[: _LENGTH.size] = _LENGTH.pack(self._used)
        self._places[key] = value_at

    def read_value(self, key: str) -> tuple[float, float]:
        """Value and time; a new key has zeros."""
        if key not in self._places:
            self._init_value(key)
        value, time = _NUMBERS.unpack_from(self._m, self._places[key])
        return value, time

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Sets value and time (seconds)."""
        if key not in self._places:
            self._init_value(key)
        at = self._places[key]
        self._m[at : at + _NUMBERS.size] = _NUMBERS.pack(value, timestamp)

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._m is not None:
            self._m.close()
            self._m = None
            self._file.close()
