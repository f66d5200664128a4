# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/python.md, as they stand there."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from otlp import Grpc

import tidegate

DOCS = Path(__file__).parents[2] / "docs/python.md"
README = Path(__file__).parents[1] / "README.md"


def programs() -> dict[str, list[str]]:
    """The programs by the heading that they are under."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"(?m)^#+ ", DOCS.read_text())[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return found


async def run(program: str, names: dict[str, Any]) -> None:
    code = compile(program, str(DOCS), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


@pytest.fixture
def collector() -> Iterator[Grpc]:
    collector = Grpc()
    yield collector
    collector.close()


@pytest.mark.parametrize("heading", [heading for heading, found in programs().items() if found])
def test_every_program_is_one(heading: str) -> None:
    for program in programs()[heading]:
        compile(program, str(DOCS), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_program_of_the_readme_prints_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    asyncio.run(run(program, {}))
    (shown,) = re.findall(r"# (requests_total.*)", program)
    assert f"{shown}\n" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["prometheus", "null", "otlp"])
def test_the_sdks(place: str, collector: Grpc) -> None:
    names: dict[str, Any] = {}
    (program,) = programs()["The SDK"]
    place = f"otlp://{collector.address}" if place == "otlp" else place
    assert 'registry("prometheus")' in program
    asyncio.run(run(program.replace('registry("prometheus")', f'registry("{place}")'), names))
    registry = names["registry"]
    registry.shutdown()
    if place == "null":
        return
    assert registry.value("service_requests", model="llama", status="ok") == 1
    if place != "prometheus":
        assert collector.values()[("service_requests", "ok")] == 1

    asyncio.run(names["answer"]("a request"))
    assert registry.value("service_latency", model="llama")[0] == 2

    names["shed_load"] = print
    (watching,) = programs()["Composites, callbacks, queries"]
    # Once is enough.
    asyncio.run(run(watching.replace(": ...", ": break"), names))
    names["service"].latency.observe(0.25)
    assert names["ttft"].get(model="llama").count == 1


def test_spans() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    called: list[dict[str, str]] = []
    names = {
        "registry": tidegate.Prometheus(),
        "Histogram": tidegate.Histogram,
        "request": SimpleNamespace(headers={"traceparent": parent}),
        "elsewhere": None,
        "call": lambda _, headers: called.append(headers),
    }
    program, _ = programs()["Spans"]
    asyncio.run(run(program, names))
    assert called == [{"traceparent": parent}]
    assert "b7ad6b7169203331" in names["registry"].expose(openmetrics=True)  # type: ignore[attr-defined]
