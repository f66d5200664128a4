# SPDX-License-Identifier: Apache-2.0

"""The schema in an editor: what it marks, completes and explains."""

from pathlib import Path

import kit
import pytest

EXAMPLES = sorted(
    path for path in (kit.ROOT / "config").glob("*.yaml") if not path.name.endswith(".test.yaml")
)

EXPORTER = """exporters:
  otlphttp/vendor:
    endpoint: https://otlp.example.com
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_without_marks(editor: kit.Editor, example: Path) -> None:
    assert editor.diagnostics(example.name, example.read_text()) == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10


# Each wrong line says in a comment what the editor says of it.
WRONG = """receivers:
  nosuch: {}                    # nosuch
  otlp/b:
    protocols:
      grpc:
        endpoint: "127.0.0.1:0"
        queu: x                 # queu
  nop: {}
exporters:
  otlphttp:
    endpoint: "${env:ENDPOINT}"
    compression: gzp            # Valid values: "none", "gzip"
    max_idle_conns: "${env:N}"
    sending_queue:
    timeout: ten seconds        # expected a duration
  debug: {verbosity: 7}         # Valid values:
  kafka: {brokers: {a: b}}      # Incorrect type
extensions:
  rules: {interval: 1m}         # Missing property "files"
service:
  pipelines:
    logs:
      receivers: [nop, otlp/b]
      processors: [nosuch]      # Valid values:
      exporters: []             # too few items
    loggs: {}                   # loggs
telemetry: {}                   # telemetry
"""


def test_wrong_options_are_marked_at_their_lines(editor: kit.Editor) -> None:
    found = editor.diagnostics("wrong.yaml", WRONG)
    expected = {
        number: line.split("# ")[1]
        for number, line in enumerate(WRONG.splitlines(), start=1)
        if "# " in line
    }
    assert [line for line, _ in found] == list(expected), found
    for line, message in found:
        assert expected[line] in message, (line, message)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("|", ["connectors", "exporters", "extensions", "processors", "receivers", "service"]),
        ("exporters:\n  |\n", ["debug", "kafka", "otlphttp", "prometheusremotewrite"]),
        ("processors:\n  |\n", ["aggregate", "batch", "composite"]),
        ("service:\n  |\n", ["drain_timeout", "extensions", "pipelines", "telemetry"]),
        ("service:\n  pipelines:\n    |\n", ["logs", "metrics", "traces"]),
        (EXPORTER + "    |\n", ["compression", "headers", "sending_queue", "tls", "vendor"]),
        (EXPORTER + "    sending_queue:\n      |\n", ["num_consumers", "queue_size", "storage"]),
        (EXPORTER + "    compression: |\n", ["gzip", "none", "zstd"]),
        (EXPORTER + "    vendor: |\n", ["datadog", "grafana_cloud", "honeycomb"]),
        (EXPORTER + "    tls:\n      insecure: |\n", ["false", "true"]),
        ("extensions:\n  rules:\n    files: [a]\n    stale: |\n", ["resolve", "unknown"]),
        (
            "service:\n  pipelines:\n    metrics:\n      receivers:\n        - |\n",
            ["forward", "nixl", "otlp", "prometheus"],
        ),
    ],
)
def test_sections_components_options_and_words_are_completed(
    editor: kit.Editor, text: str, offered: list[str]
) -> None:
    found = editor.completions("completed.yaml", text)
    assert set(offered) <= set(found), found


@pytest.mark.parametrize(
    ("text", "others"),
    [
        (EXPORTER + "    |\n", ["exporters", "otlphttp", "queue_size"]),
        # Logs only.
        ("service:\n  pipelines:\n    logs:\n      receivers:\n        - |\n", ["nixl", "prometheus"]),
    ],
)
def test_nothing_is_offered_that_does_not_fit(editor: kit.Editor, text: str, others: list[str]) -> None:
    found = editor.completions("completed.yaml", text)
    assert found and not set(others) & set(found), found


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("exp|orters: {nop: }\n", "The exporters, by "),
        ("exporters:\n  otlp|http: {endpoint: https://a}\n", "sends metrics, traces and logs by OTLP over HTTP"),
        (EXPORTER + "    time|out: 10s\n", "Longest duration of one attempt."),
        (EXPORTER + "    compr|ession: gzip\n", "Compression of requests."),
        (EXPORTER + "    compression: gz|ip\n", "Compression of requests."),
        (EXPORTER + "    sending|_queue: {queue_size: 10}\n", "Queue of batches that wait for delivery."),
        (EXPORTER + "    sending_queue: {queue|_size: 10}\n", "Capacity of the queue in units of "),
        (EXPORTER + "    tl|s: {ca_file: a}\n", "TLS "),
        ("extensions:\n  rules:\n    files: [a]\n    sta|le: unknown\n", "Treatment of alerts whose query reads only"),
        ("service:\n  pipe|lines: {}\n", "The pipelines, by "),
        ("service: {telemetry: {logs: {lev|el: info}}}\n", "The lowest level that the gateway logs."),
    ],
)
def test_the_text_of_an_option_is_shown_at_once(editor: kit.Editor, text: str, begin: str) -> None:
    """A title of the schema would stand above the text of each option."""
    assert editor.hover("hovered.yaml", text).startswith(begin)


def test_a_hover_lists_the_words_that_an_option_takes(editor: kit.Editor) -> None:
    shown = editor.hover("hovered.yaml", EXPORTER + "    compr|ession: gzip\n")
    for word in ("gzip", "zstd", "none"):
        assert f"* `{word}`" in shown, shown
