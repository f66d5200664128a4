#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Writes the pages of docs/reference from what a build of tidegate says of itself, and from docs/benchmarks.md the tables
for sizing and the plots. It draws the diagrams of the concepts too.

`cargo xtask reference` runs it with the newest build. With `--check` it writes nothing, names the pages that differ, and
ends with 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import diagrams
import example_values
import plots
import sizing

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"
OPERATIONS = DOCS / "operations.md"

CLASSES = ["receiver", "processor", "exporter", "connector", "extension"]

# The pages with the ideas and the use of a component, where they are not those of its class.
GUIDES = {
    "receivers/kafka": "kafka.md",
    "receivers/nats": "nats.md",
    "receivers/nixl": "nixl.md",
    "receivers/nixl_mp": "nixl.md",
    "receivers/otlp": "otlp.md",
    "receivers/partials": "cluster.md",
    "receivers/prometheus": "scraping.md",
    "receivers/prometheusremotewrite": "remote-write.md",
    "receivers/rules": "rules.md",
    "receivers/shm": "shm.md",
    "receivers/uds": "events.md",
    "exporters/kafka": "kafka.md",
    "exporters/nats": "nats.md",
    "exporters/otlp": "otlp.md",
    "exporters/otlphttp": "otlp.md",
    "exporters/loadbalancing": "otlp.md",
    "exporters/partials": "cluster.md",
    "exporters/plugin": "plugins.md",
    "exporters/prometheus": "prometheus.md",
    "exporters/prometheusremotewrite": "remote-write.md",
    "processors/composite": "composites.md",
    "extensions/admin": "queries.md",
    "extensions/basicauth": "otlp.md",
    "extensions/bearertokenauth": "otlp.md",
    "extensions/cluster": "cluster.md",
    "extensions/composite_page": "page.md",
    "extensions/file_storage": "otlp.md",
    "extensions/headers_setter": "otlp.md",
    "extensions/pprof": "telemetry.md",
    "extensions/rules": "rules.md",
    "extensions/sigv4auth": "otlp.md",
    "extensions/zpages": "telemetry.md",
}
GUIDE_OF_CLASS = {"processors": "processors.md"}

NOTICE = "<!-- Written by `cargo xtask reference`. Change the text in the source, not here. -->\n\n"

EXIT_CODES = """## Exit codes

| code | meaning |
| --- | --- |
| 0 | the command did what you asked |
| 1 | the command failed. Standard error has the reason. `test`, `config fmt --check`, `query --json` and `validate --output` have it on standard output |
| 2 | the command line is wrong: an unknown command or option, a missing argument, or a value of a wrong form. Standard error says which |
| 130, 143 | SIGINT (Ctrl-C) or SIGTERM has ended the command. A shell shows these codes |
| 134 | the async runtime is broken (SIGABRT). Restart the gateway |

These cases end with 0:

| command | case |
| --- | --- |
| `run`, `quickstart` | SIGTERM or SIGINT stops the gateway |
| `run` | a second signal, more than a second after the first one, ends the drain |
| `top`, `ring tail`, `ring sim` | SIGINT or SIGTERM ends the command |
| `composites watch`, `tap`, `top`, `ring tail` | the program that reads the output has ended, for example `head` |
| `query` | the answer is empty |
| `ring ls` | a directory has files of others too |
| `ring tail` | the ring no longer exists |

These cases end with 1:

| command | case |
| --- | --- |
| every command that prints | the output can't be written, for example to a full disk |
| `run`, `validate`, `graph`, `config print` | the configuration has errors, or `--config` is missing |
| `run` | a component can't start |
| `validate --env` | the machine lacks something that the configuration needs |
| `test` | a test fails |
| `test` | a file is not a file of tests |
| `test` | a rule file is broken |
| `test` | no test has the name of `--run` |
| `config convert` | the file can't be read, or no pipeline is left |
| `config convert --strict` | something is changed or left out |
| `config fmt` | a file can't be read, or is not valid YAML |
| `config fmt --check` | a file has another layout |
| `components` | the class or the type does not exist |
| `query --fail-empty` | the answer is empty |
| `explain` | no series matches |
| `composites get` | no group has the labels of `--label`. With `--json`, the answer is an empty list, and the code is 0 |
| `cluster status` | the gateway has no `cluster` extension |
| `composites watch` | the gateway ends the stream, before the number of `--events` |
| `tap` | the gateway can't be reached at first. Later the command connects again |
| `tap` | the gateway refuses the tap |
| `ring ls` | a file can't be read, or a file that you name is not of NIXL |
| `ring inspect` | the file is not a ring or a store |
| `support-bundle` | a part is missing |

"""

Row = dict[str, Any]


def cell(text: str) -> str:
    """Text for a cell of a table: a bar would end it, and `<` outside code would begin a tag."""
    pieces = text.replace("|", "\\|").split("`")
    outside = [piece.replace("<", "&lt;") if at % 2 == 0 else piece for at, piece in enumerate(pieces)]
    return "`".join(outside)


def code(text: str) -> str:
    """A value as code. A text with quotes of its own needs longer ones."""
    quotes = "``" if "`" in text else "`"
    return f"{quotes}{text}{quotes}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell(value) for value in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def sentence(text: str) -> str:
    """The text as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def option_row(option: Row, example: str | None) -> list[str]:
    default = "required" if option["is_required"] else code(option["default"])
    if option["default"] == "unset":
        default = "unset"
    if option["default"] == example_values.SECRET:
        default = code('""')
    # The defaults of a map are those of its options.
    if (option["default"] or "").startswith("{") and option["default"] != "{}" and option["type"] == "map":
        default = ""
    meaning = sentence(option["description"])
    if example is not None:
        meaning += f" Example: {code(example)}."
    if option["aliases"]:
        meaning += f" Also: {', '.join(code(name) for name in option['aliases'])}."
    if option["deprecated"]:
        meaning += f" Deprecated spelling: {', '.join(code(name) for name in option['deprecated'])}."
    return [code(option["path"]), option["type"], default, meaning]


def options(rows: list[Row], example: str = "") -> str:
    """The tables of options. `example` is that of the page."""
    counting = [option for option in rows if not option["is_without_effect"]]
    others = [option for option in rows if option["is_without_effect"]]
    text = "## Options\n\n"
    if not counting:
        text += "There are no options.\n\n"
    else:
        text += (
            "`::` stands between an option and the options inside it, `[]` for an item of a list, and `NAME` for a key that\n"
            "you choose.\n\n"
        )
        shown = ((option, example_values.example_of(option, counting, example)) for option in counting)
        text += table(["option", "type", "default", "meaning"], [option_row(*each) for each in shown])
    if others:
        text += "## Options without effect\n\nThe gateway accepts these options of the Collector with a warning.\n\n"
        text += table(["option", "reason"], [[code(option["path"]), option["description"]] for option in others])
    return text


def shown_name(metric: Row) -> str:
    """The name as pages show it."""
    return str(metric["name"]).replace(".", "_")


def metric_rows(metrics: list[Row]) -> list[list[str]]:
    return [
        [code(shown_name(metric)), metric["kind"], code(metric["unit"]), metric["level"], metric["description"]]
        for metric in metrics
    ]


METRIC_HEAD = ["metric", "kind", "unit", "level", "meaning"]


def section_of(component: Row) -> str:
    return f"{component['class']}s"


def errors(rows: list[Row]) -> str:
    text = "## Errors\n\n"
    if not rows:
        return text + "The component reports no errors of its own.\n\n"
    text += (
        "The answer is what the peer gets: the HTTP status or the gRPC code. The log line contains the text of the third column.\n"
        "If an error prevents the start, standard error has the text.\n\n"
    )
    return text + table(
        ["error", "answer", "log line", "what to do"],
        [[row["case"], row["answer"] or "", code(row["log"].strip()) if row["log"] else "", row["remedy"]] for row in rows],
    )


def service_page(service: Row) -> str:
    text = f"# service\n\n{NOTICE}"
    text += (
        "The section `service` chooses the components that run, connects them to pipelines, and sets the telemetry of the\n"
        "gateway itself. [Configuration](../configuration.md) has its rules, and\n"
        "[the gateway's own telemetry](../telemetry.md) the use of `telemetry`.\n\n"
    )
    return (text + options(service["options"])).rstrip("\n") + "\n"


def component_page(component: Row, own_metrics: list[Row]) -> str:
    section, kind = section_of(component), component["type"]
    text = f"# {kind} ({component['class']})\n\n{NOTICE}{sentence(component['description'])}\n\n"
    if component["aliases"]:
        text += f"Other names of the type: {', '.join(code(name) for name in component['aliases'])}.\n\n"
    guide = GUIDES.get(f"{section}/{kind}", GUIDE_OF_CLASS.get(section))
    if guide:
        title = (DOCS / guide).read_text().partition("\n")[0].removeprefix("# ")
        text += f"Ideas and use: [{title}](../../{guide}).\n\n"
    text += "## Stability\n\n"
    if component["class"] == "extension":
        text += f"The extension is {code(component['stability']['extension'])}.\n\n"
    else:
        signals = [[signal, stability] for signal, stability in component["stability"].items()]
        text += table(["signal", "stability"], signals)
    text += f"## Example\n\n```yaml\n{component['example']}```\n\n"
    text += options(component["options"], component["example"])
    if component["vendors"]:
        text += "## Presets of vendors\n\n```yaml\n" + "".join(f"{line}\n" for line in component["vendors"]) + "```\n\n"
    names = component["own_metrics"]
    special = [metric for metric in own_metrics if metric["name"] in names and not metric["of_all"]]
    text += "## Own metrics\n\n"
    if special:
        text += table(METRIC_HEAD, metric_rows(special))
    if len(names) > len(special):
        text += f"The gateway counts this component with [all {section}](../metrics.md#{section}).\n\n"
    if not names:
        text += "The component has no metrics of its own.\n\n"
    if component["drop_reasons"]:
        text += "## Reasons of drops\n\n`tidegate_dropped_items_total` has one of these in its label `reason`:\n\n"
        text += table(
            ["reason", "meaning"], [[code(row["reason"]), row["description"]] for row in component["drop_reasons"]]
        )
    text += errors(component["errors"])
    return text.rstrip("\n") + "\n"


def metrics_page(metrics: list[Row]) -> str:
    text = f"# Own metrics\n\n{NOTICE}"
    text += (
        "The gateway serves these metrics about itself. [The gateway's own telemetry](../telemetry.md) says where, and how\n"
        "to use them. `level` is the lowest value of `service::telemetry::metrics::level` with the metric. Units are those of\n"
        "UCUM: `By` is a byte, `s` is a second, and `{...}` counts.\n\n"
    )
    for section in [f"{name}s" for name in CLASSES]:
        common = [metric for metric in metrics if section in metric["of_all"]]
        special = [metric for metric in metrics if any(owner.startswith(f"{section}/") for owner in metric["of"])]
        if not common and not special:
            continue
        text += f"## {section.title()}\n\n"
        if common:
            text += f"All {section} have these:\n\n" + table(METRIC_HEAD, metric_rows(common))
        if special:
            rows = []
            for metric, row in zip(special, metric_rows(special)):
                kinds = [owner.partition("/")[2] for owner in metric["of"] if owner.startswith(f"{section}/")]
                links = ", ".join(f"[{kind}]({section}/{kind}.md)" for kind in kinds)
                rows.append([row[0], links, *row[1:]])
            text += f"Some {section} have these:\n\n" + table(["metric", "of", *METRIC_HEAD[1:]], rows)
    rest = [metric for metric in metrics if not metric["of_all"] and not metric["of"]]
    text += "## The gateway\n\n" + table(METRIC_HEAD, metric_rows(rest))
    return text.rstrip("\n") + "\n"


def api_page(pages: list[Row]) -> str:
    text = f"# HTTP API\n\n{NOTICE}"
    text += (
        "The [admin](extensions/admin.md) extension serves these paths. [Queries](../queries.md) has parameters, limits and\n"
        "errors of those that Prometheus has too, and [composites](../composites.md) those of composites. The same port\n"
        "serves gRPC: `tidegate.v1.Query` and KEDA's `externalscaler.ExternalScaler`.\n\n"
    )
    return text + table(
        ["path", "methods", "answer"], [[code(page["path"]), page["methods"], page["description"]] for page in pages]
    ).rstrip("\n") + "\n"


def run(binary: str, *arguments: str) -> str:
    # Variables of the caller would be in the help texts.
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    result = subprocess.run([binary, *arguments], env=clean, capture_output=True, text=True, check=True)
    return result.stdout


def commands_below(binary: str, path: list[str]) -> Iterator[tuple[list[str], str]]:
    """A command and those inside it, each with its help."""
    text = run(binary, *path, "--help")
    yield path, text
    inside = re.search(r"^Commands:\n((?:  .*\n|\n)+)", text, re.MULTILINE)
    for name in re.findall(r"^  (\S+)", inside[1], re.MULTILINE) if inside else []:
        if name != "help":
            yield from commands_below(binary, [*path, name])


def commands_page(binary: str) -> str:
    text = f"# Commands\n\n{NOTICE}"
    text += "[Commands](../commands.md) has what commands share, with pictures.\n\n" + EXIT_CODES
    for path, shown in commands_below(binary, []):
        lines = "\n".join(line.rstrip() for line in shown.strip("\n").splitlines())
        text += f"## {' '.join(['tidegate', *path])}\n\n```text\n{lines}\n```\n\n"
    return text.rstrip("\n") + "\n"


def index_page(components: list[Row], version: str) -> str:
    text = f"# Reference\n\n{NOTICE}Of tidegate {version}, as the program describes itself.\n\n"
    text += table(
        ["page", "content"],
        [
            ["[Commands](commands.md)", "every command with its options, and the exit codes"],
            ["[service](service.md)", "every option of `service`: extensions, pipelines, telemetry, the time limit of a stop"],
            ["[Own metrics](metrics.md)", "every metric of the gateway itself, with its unit"],
            ["[HTTP API](api.md)", "every path of the `admin` extension"],
        ],
    )
    text += (
        "A page of a component has its options with types, defaults and meaning, and an example. It also has its own metrics,\n"
        "the reasons for which it drops items, and its errors. `tidegate components --json` prints the same.\n\n"
    )
    for name in CLASSES:
        of_class = [component for component in components if component["class"] == name]
        rows = [[f"[{row['type']}]({name}s/{row['type']}.md)", row["description"]] for row in of_class]
        text += f"## {name.title()}s\n\n" + table([name, "use"], rows)
    return text.rstrip("\n") + "\n"


def pages(binary: str) -> dict[Path, str]:
    """The text of each page."""
    document = json.loads(run(binary, "components", "--json"))
    components, own_metrics = document["components"], document["own_metrics"]
    found = {
        REFERENCE / "README.md": index_page(components, document["version"]),
        REFERENCE / "commands.md": commands_page(binary),
        REFERENCE / "service.md": service_page(document["service"]),
        REFERENCE / "metrics.md": metrics_page(own_metrics),
        REFERENCE / "api.md": api_page(document["http_api"]),
    }
    for component in components:
        path = REFERENCE / section_of(component) / f"{component['type']}.md"
        found[path] = component_page(component, own_metrics)
    benchmarks = (DOCS / "benchmarks.md").read_text()
    found[OPERATIONS] = sizing.sized(OPERATIONS.read_text(), benchmarks)
    found |= plots.pictures(benchmarks) | diagrams.pictures()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and name the pages that differ")
    parser.add_argument("binary", help="the program to describe")
    arguments = parser.parse_args()
    new = pages(arguments.binary)
    drawn = [*DOCS.glob("plot-*.svg"), *DOCS.glob("concept-*.svg")]
    old = {path: path.read_text() for path in [OPERATIONS, *REFERENCE.rglob("*.md"), *drawn]}
    differing = sorted(path for path in new.keys() | old.keys() if new.get(path) != old.get(path))
    for path in differing:
        print(f"{path.relative_to(DOCS.parent)}: {'differs' if path in new and path in old else 'new or gone'}")
    if arguments.check:
        return 1 if differing else 0
    for path in differing:
        if path in new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
