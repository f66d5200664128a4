# SPDX-License-Identifier: Apache-2.0

"""The blocks of code of pages work as they stand there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from blocks import DOCS, Page, blocks, pattern
from guides import Guide, Servers, engines

# The servers that the reader of a guide has, by their addresses in it.
SERVERS: dict[str, Servers] = {
    "dynamo.md": {"127.0.0.1:8000": engines.dynamo, "127.0.0.1:8081": engines.dynamo_worker},
    "vllm-sglang.md": {"127.0.0.1:8000": engines.vllm, "127.0.0.1:30000": engines.sglang},
}

AGENTS = "tidegate ring sim --directory /run/nixl --agents 2 --rate 50 --prefix engine_"


def on_kubernetes(page: str) -> dict[str, str]:
    """An agent and the gateway of the chart, with the rules and the composites that the values of a page have."""
    (values,) = (found for found in values_of(page) if "agent" in found)
    pod = {"k8s.namespace.name": "inference", "k8s.pod.name": "decode-7d4b9c6f5-k2x8p"}
    agent = {
        "receivers": {"nixl": {"directories": ["/run/nixl"], "hostname": "node-a"}},
        "processors": {
            # It stands for `k8sattributes`, which needs an API server.
            "resource": {"attributes": [{"key": key, "value": value, "action": "insert"} for key, value in pod.items()]},
            "aggregate": {"rules": values["agent"]["extraConfig"]["processors"]["aggregate"]["rules"], "interval": "1s"},
        },
        "exporters": {"otlp": {"endpoint": "127.0.0.1:4317", "tls": {"insecure": True}}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["nixl"], "processors": ["resource", "aggregate"], "exporters": ["otlp"]}},
        },
    }
    gateway = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:4317"}}}},
        "processors": {"composite": {"composites": values["gateway"]["composites"]}},
        "exporters": {"prometheus": {"endpoint": "127.0.0.1:9464"}},
        "extensions": {"admin": {"endpoint": "127.0.0.1:8080"}},
        "service": {
            "extensions": ["admin"],
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "processors": ["composite"], "exporters": ["prometheus"]}},
        },
    }
    run = {name: f"tidegate run --config 'yaml:{json.dumps(config)}'" for name, config in (("gateway", gateway), ("agent", agent))}
    return {"rings": AGENTS} | run


def values_of(page: str) -> list[dict[str, Any]]:
    return [yaml.safe_load(block.text) for block in blocks(page) if block.text.startswith("# values.yaml\n")]


# The programs that the reader of a guide has.
PROGRAMS = {
    "nixl-bare-metal.md": {"agents": AGENTS},
    "nixl-kubernetes.md": on_kubernetes("guides/nixl-kubernetes.md"),
}


PAGES = ("concepts.md", "events.md", "operations.md", "tutorial.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_works(page: str, tmp_path: Path) -> None:
    assert len(list(blocks(page))) >= 2
    Guide(page, tmp_path, os.environ["TIDEGATE_BINARY"]).run()


# tests/dist runs this guide: it needs the SDK.
GUIDES = sorted(path.name for path in (DOCS / "guides").glob("*.md") if path.name != "sdk.md")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_block_of_the_guide_works(guide: str, tmp_path: Path) -> None:
    Guide(f"guides/{guide}", tmp_path, os.environ["TIDEGATE_BINARY"], SERVERS.get(guide), PROGRAMS.get(guide)).run()


def test_output_may_differ_in_numbers_and_not_in_words() -> None:
    shown = "NAME  VALUE\na{x=\"rank_0\"}  1.5\n...\nlast 2\n"
    assert pattern(shown).fullmatch("NAME VALUE\na{x=\"rank_7\"} 22.75\nmore\nand more\nlast 3\n")
    assert not pattern(shown).fullmatch("NAME VALUE\na{x=\"rank_7\"} -\nlast 3\n")
    assert not pattern(shown).fullmatch("NAME VALUE\nb{x=\"rank_7\"} 1\nlast 3\n")


def test_a_block_that_no_test_knows_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text("```perl\nprint 1\n```\n")
    monkeypatch.setattr("blocks.DOCS", tmp_path)
    with pytest.raises(AssertionError, match="no test knows blocks of `perl`"):
        Page("page.md", tmp_path, "/bin/true").run()


PANEL = """
```yaml
# gateway.yaml
receivers: {uds: {datagram: {path: statsd.sock}}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [uds], exporters: [prometheus]}}
```

<!-- background: gateway -->
```sh
tidegate run --config gateway.yaml
```

```sh
if [ ! -e sent ]; then python3 -c 'import socket; socket.socket(1, 2).sendto(b"hits:7|c", "statsd.sock")' && touch sent; fi
```

```sh
tidegate query 'sum by (job) (hits_total)'
```

<!-- panel -->
```text
{}  7
```
"""


@pytest.mark.parametrize("shown", ["7", "8"])
def test_a_panel_ends_at_the_numbers_of_the_guide(shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(PANEL)
    monkeypatch.setattr("blocks.DOCS", tmp_path)
    monkeypatch.setattr("guides.DOCS", tmp_path)
    guide = Guide("page.md", tmp_path, os.environ["TIDEGATE_BINARY"])
    if shown == "7":
        guide.run()
        return
    # The command has the number of the guide, and the panel another one.
    monkeypatch.setattr("guides.SOON", 1.0)
    monkeypatch.setattr(guide, "compare_exactly", lambda *_: None)
    (tmp_path / "page.md").write_text(PANEL.replace("{}  7", "{}  8"))
    with pytest.raises(AssertionError, match=r"\{\}  8"):
        guide.run()
