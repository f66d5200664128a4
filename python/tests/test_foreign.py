# SPDX-License-Identifier: Apache-2.0
"""A registry in another language, played by `ctypes`: the same numbers behind the C table as here."""

from __future__ import annotations

import ctypes as c
from typing import Any

import pytest
from component import VALUES, component, values

from tidegate import Foreign

Handle, Context = c.c_uint64, c.c_void_p


class Text(c.Structure):
    _fields_ = [("bytes", c.c_void_p), ("length", c.c_size_t)]

    def __str__(self) -> str:
        return c.string_at(self.bytes, self.length).decode()


class Spec(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("kind", c.c_uint32),
        ("name", Text),
        ("help", Text),
        ("unit", Text),
        ("labels", c.POINTER(Text)),
        ("label_count", c.c_size_t),
        ("bounds", c.POINTER(c.c_double)),
        ("bound_count", c.c_size_t),
    ]


Register = c.CFUNCTYPE(c.c_int32, Context, c.POINTER(Spec), c.POINTER(Handle))
Series = c.CFUNCTYPE(Handle, Context, Handle, c.POINTER(Text), c.c_size_t)
AddU64 = c.CFUNCTYPE(None, Context, Handle, c.c_uint64)
AddI64 = c.CFUNCTYPE(None, Context, Handle, c.c_int64)
Double = c.CFUNCTYPE(None, Context, Handle, c.c_double)
Remove = c.CFUNCTYPE(None, Context, Handle)
Release = c.CFUNCTYPE(None, Context)


class Table(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("context", Context),
        ("register", Register),
        ("series", Series),
        ("add_u64", AddU64),
        ("add_f64", Double),
        ("add_i64", AddI64),
        ("set", Double),
        ("observe", Double),
        ("remove", Remove),
        ("release", Release),
    ]


class There:
    """The other side: families, series and their values by number."""

    def __init__(self) -> None:
        self.families: list[tuple[str, list[str], list[float]]] = []
        self.series: dict[tuple[int, tuple[str, ...]], int] = {}
        self.values: dict[int, Any] = {}
        self.released = 0
        self.refuses = 0
        # ctypes keeps what it calls only as long as this does.
        self.table = Table(
            c.sizeof(Table),
            None,
            Register(self._register),
            Series(self._series),
            AddU64(self._add),
            Double(self._add),
            AddI64(self._add),
            Double(self._set),
            Double(self._observe),
            Remove(lambda _, series: self.values.pop(series) and None),
            Release(self._release),
        )

    def capsule(self, name: bytes = b"tidegate.ForeignVtable") -> Any:
        new = c.pythonapi.PyCapsule_New
        new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
        self.name = name
        return new(c.addressof(self.table), self.name, None)

    def _register(self, _: Any, spec: Any, family: Any) -> int:
        told = spec.contents
        labels = [str(told.labels[at]) for at in range(told.label_count)]
        self.families.append((str(told.name), labels, told.bounds[: told.bound_count]))
        family[0] = len(self.families) - 1
        return self.refuses

    def _series(self, _: Any, family: int, texts: Any, count: int) -> int:
        key = (family, tuple(str(texts[at]) for at in range(count)))
        return self.series.setdefault(key, len(self.series))

    def _add(self, _: Any, series: int, amount: Any) -> None:
        self.values[series] = self.values.get(series, 0) + amount

    def _set(self, _: Any, series: int, value: float) -> None:
        self.values[series] = value

    def _observe(self, _: Any, series: int, value: float) -> None:
        count, total = self.values.get(series, (0, 0.0))
        self.values[series] = (count + 1, total + value)

    def _release(self, _: Any) -> None:
        self.released += 1

    def told(self) -> dict[tuple[str, str], Any]:
        """As `component.values` has them."""
        found = {}
        for (family, label_values), series in self.series.items():
            name, labels, _ = self.families[family]
            own = dict(zip(labels, label_values))
            assert own["model"] == "llama"
            found[(name, own.get("status", ""))] = self.values[series]
        return found


def test_a_registry_in_another_language() -> None:
    there = There()
    registry = Foreign(there.capsule())
    service = component(registry)
    assert values(registry) == VALUES == there.told()
    assert ("service_sizes", ["model"], [10.0, 100.0]) in there.families
    service.requests.remove("ok")
    assert ("service_requests", "ok") not in values(registry) and len(there.values) == len(VALUES) - 1
    registry.shutdown()
    assert there.released == 0
    del registry, service
    assert there.released == 1


def test_what_is_refused() -> None:
    there = There()
    there.refuses = 7
    with pytest.raises(ValueError, match="refused it with code 7"):
        component(Foreign(there.capsule()))
    with pytest.raises(ValueError):
        Foreign(there.capsule(b"something else"))
    with pytest.raises(TypeError):
        Foreign(c.addressof(there.table))
    there.table.size = 0
    with pytest.raises(ValueError, match="no size"):
        Foreign(there.capsule())
