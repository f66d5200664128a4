# SPDX-License-Identifier: Apache-2.0
"""Files of prometheus_client: what one library writes the other one reads."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from kit import CLIENTS


def module(client: str) -> Any:
    return importlib.import_module(client + ".mmap_dict")


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("reader", CLIENTS)
def test_both_read_what_both_write(writer: str, reader: str, tmp_path: Path) -> None:
    path = str(tmp_path / "counter_1.db")
    written = module(writer).MmapedDict(path)
    keys = [module(writer).mmap_key("m", "m_total", ["b", "a"], [f"\u00fc{at}", "x"], "help") for at in range(1500)]
    for at, key in enumerate(keys):
        written.write_value(key, float(at), at + 0.5)
    assert written.read_value(keys[7]) == (7.0, 7.5)
    assert written.read_value("new") == (0.0, 0.0)
    written.close()
    expected = [(key, float(at), at + 0.5) for at, key in enumerate(keys)] + [("new", 0.0, 0.0)]
    from_file = module(reader).MmapedDict.read_all_values_from_file(path)
    assert [entry[:3] for entry in from_file] == expected
    read = module(reader).MmapedDict(path, read_mode=True)
    assert list(read.read_all_values()) == expected
    read.close()
    again = module(reader).MmapedDict(path)
    again.write_value(keys[0], 9.0, 1.0)
    assert again.read_value(keys[0]) == (9.0, 1.0)
    again.close()


def test_keys_are_equal() -> None:
    arguments = ("m", "m_total", ["b", "a"], ["1", "2"], "help")
    assert module(CLIENTS[0]).mmap_key(*arguments) == module(CLIENTS[1]).mmap_key(*arguments)


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"])
def test_damage_is_an_error(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    values = module(CLIENTS[1]).MmapedDict(str(path))
    values.write_value("key", 1.0, 1.0)
    values.close()
    data = path.read_bytes()
    path.write_bytes(data[:8] + damage + data[12:])
    with pytest.raises(RuntimeError, match="corrupted"):
        list(module(CLIENTS[1]).MmapedDict.read_all_values_from_file(str(path)))
