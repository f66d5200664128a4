# SPDX-License-Identifier: Apache-2.0

"""A run of a how-to guide: a page whose blocks may also be objects of Kubernetes, values of the chart, and programs.

- A block `yaml` that begins with `apiVersion:` has objects of Kubernetes. Schemas check those of Kubernetes itself. The triggers
  of a ScaledObject may name only composites that a configuration of the page declares.
- A block `yaml` whose first line is `# values.yaml` has values of the Helm chart. The schema of the chart checks them, and
  tests/deploy renders the chart with them.
- `<!-- exact -->` before a block `text`: its numbers are those of the output.
- `<!-- panel -->` before a block `text`: the same, and Grafana gets these numbers at the end of a panel with the query above.
- `<!-- example: NAME -->` before a block `sh`: the test runs a program that it has under this name instead.
- Servers that the reader has, such as inference engines, are simulated at the addresses that the guide has for them. Programs
  that the reader has, such as agents, run before the first block.
- Directories of the system, such as `/run/nixl`, are below the directory of the run.
"""

import http.server
import json
import re
import shlex
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Callable

import jsonschema
import kubernetes_validate
import yaml
from blocks import DOCS, SOON, Block, Page, blocks

sys.path.append(str(Path(__file__).parents[1] / "deploy"))
import engines

VERSIONS = ("1.27", "1.37")

# Directories that a guide writes to.
SYSTEM = re.compile(r"(?<![\w/.])(/run/nixl|/run/tidegate|/var/lib/tidegate)")

Servers = dict[str, Callable[[float], str]]


class Guide(Page):
    """Servers have the addresses of the text, and a page for each time since the start. Programs are commands by name."""

    def __init__(
        self, name: str, directory: Path, binary: str, servers: Servers | None = None, programs: dict[str, str] | None = None
    ) -> None:
        super().__init__(name, directory, binary)
        self.servers = servers or {}
        self.programs = programs or {}
        self.examples: dict[str, Path] = {}
        self.composites = declared(name)

    def moved(self, text: str) -> str:
        return SYSTEM.sub(lambda path: f"{self.work}{path[0]}", super().moved(text))

    def run(self) -> None:
        started: list[http.server.ThreadingHTTPServer] = []
        try:
            for address, page in self.servers.items():
                started.append(engines.serve(page, int(self.moved(address).rpartition(":")[2])))
            for name, command in self.programs.items():
                self.start(name, self.moved(command))
            super().run()
        finally:
            for server in started:
                server.shutdown()
                server.server_close()

    def run_block(self, block: Block, asked: str | None) -> str | None:
        kind, _, name = block.note.partition(": ")
        if kind == "example":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
            return str(self.examples[name])
        if kind in ("exact", "panel"):
            assert asked is not None
            at = f"docs/{self.name}:{block.line}"
            self.compare_exactly(at, asked, block.text)
            if kind == "panel":
                self.compare_panel(at, asked, block.text)
            return None
        return super().run_block(block, asked)

    def compare_exactly(self, at: str, command: str, expected: str) -> None:
        end = time.monotonic() + SOON
        while (result := self.finished(["bash", "-c", command])).stdout.split() != expected.split():
            assert time.monotonic() < end, f"{at}: {command}\n{result.stdout}{result.stderr}\nexpected:\n{expected}"
            time.sleep(0.2)

    def compare_panel(self, at: str, asked: str, expected: str) -> None:
        """Asks as Grafana does for a panel of a minute, with the query of a command."""
        program, command, query = shlex.split(asked)
        assert (program, command) == ("tidegate", "query"), f"{at}: {asked}"
        address, end = self.moved("127.0.0.1:8080"), time.monotonic() + SOON
        while True:
            now = time.time()
            form = urllib.parse.urlencode({"query": query, "start": now - 60, "end": now, "step": 1})
            with urllib.request.urlopen(f"http://{address}/api/v1/query_range", form.encode(), timeout=60) as answer:
                result = json.load(answer)["data"]["result"]
            shown = [f"{labels_of(series['metric'])}  {series['values'][-1][1]}" for series in result]
            if sorted(shown) == sorted(expected.splitlines()):
                return
            assert time.monotonic() < end, f"{at}: {query}\n{result}\nexpected:\n{expected}"
            time.sleep(0.2)

    def check_yaml(self, at: str, text: str) -> None:
        if text.startswith("apiVersion:"):
            for found in yaml.safe_load_all(text):
                check_object(at, found, self.composites)
        elif text.startswith("# values.yaml\n"):
            check_values(at, yaml.safe_load(text))
        else:
            super().check_yaml(at, text)


def labels_of(metric: dict[str, str]) -> str:
    """The labels of a series as `tidegate query` prints them."""
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(metric.items()) if name != "__name__")
    return f"{metric.get('__name__', '')}{{{labels}}}"


def check_object(at: str, found: dict[str, Any], composites: set[str]) -> None:
    """An object of Kubernetes. The triggers of a ScaledObject may name only these composites."""
    if found["kind"] != "ScaledObject":
        for version in VERSIONS:
            kubernetes_validate.validate(found, version, strict=True)
        return
    triggers = found["spec"]["triggers"]
    assert triggers, at
    for trigger in triggers:
        metadata = trigger["metadata"]
        text = metadata.get("composite") or metadata.get("signals") or metadata["query"]
        selected = re.findall(r"[a-z]\w*(?=[{/]|$)", re.sub(r"\{[^}]*\}", "{", re.sub(r"^\w+\((.*)\)$", r"\1", text)))
        assert selected and set(selected) <= composites, f"{at}: {text} is not of {composites}"


def check_values(at: str, values: object) -> None:
    """Values of the Helm chart."""
    schema = json.loads((DOCS.parent / "deploy/helm/tidegate/values.schema.json").read_text())
    try:
        jsonschema.validate(values, schema)
    except jsonschema.ValidationError as error:
        raise AssertionError(f"{at}: {error.message}") from error


def declared(page: str) -> set[str]:
    """The names of all composites in the configurations of a page."""
    found: set[str] = set()
    for block in blocks(page):
        if block.language == "yaml":
            for document in yaml.safe_load_all(block.text):
                found |= composites(document)
    return found


def composites(part: object) -> set[str]:
    if isinstance(part, list):
        return {name for one in part for name in composites(one)}
    if not isinstance(part, dict):
        return set()
    own = {one["name"] for one in part.get("composites") or [] if isinstance(one, dict)}
    return own | {name for one in part.values() for name in composites(one)}
