# SPDX-License-Identifier: Apache-2.0

"""Writes the dashboards, the alerts, their tests and their runbooks from the YAML files of this folder.

`cargo xtask dashboards` runs it. `tests/deploy/test_monitoring.py` fails if a file is older than its source.

It is Python with YAML because the tests of `deploy/` need both already. Jsonnet, the usual language of dashboards, would be
one more program to install, and it can't wrap the lines of a document.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).parent
ROOT = SOURCE.parents[1]

# The folder of documents that dashboards and alerts name. The chart replaces it by its value `docsUrl`, if that is set. A path
# and no link: nobody knows here where a reader has the documents, and a dead link is worse than none.
DOCS = "docs"

GENERATED = "deploy/monitoring; `cargo xtask dashboards` writes this file again"

# Grafana's grid has 24 columns. Widths and heights of panels by type, unless the source says otherwise.
COLUMNS = 24
SIZES = {"stat": (6, 4), "timeseries": (12, 8), "heatmap": (12, 8), "table": (12, 8)}

LAST_VALUE = {"calcs": ["lastNotNull"], "fields": "", "values": False}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# When the tests of alerts look.
EVALUATED_AT = "40m"

Json = dict[str, Any]


def document(page: str) -> str:
    return f"{DOCS}/{page}"


def described(source: Json) -> str:
    """The description of a panel with its document. Grafana makes a link of an address there."""
    if "docs" not in source:
        return source["description"]
    what = "What to do" if "runbooks" in source["docs"] else "What this means"
    return f"{source['description']} {what}: {document(source['docs'])}."


def panel_options(kind: str, source: Json) -> Json:
    """The options of a panel that Grafana keeps beside its fields."""
    if kind == "stat":
        return {"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "reduceOptions": LAST_VALUE, "textMode": "value", "wideLayout": True}
    if kind == "timeseries":
        legend = {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "heatmap":
        axis = {"axisPlacement": "left", "unit": source.get("unit", "short")}
        return {"calculate": False, "cellGap": 1, "color": {"mode": "scheme", "scheme": "Blues", "steps": 64}, "legend": {"show": True}, "yAxis": axis}
    return {"cellHeight": "sm", "showHeader": True}


def defaults(kind: str, source: Json) -> Json:
    """What holds for all fields of a panel: unit, thresholds and bounds."""
    steps = source.get("steps", [["green"]])
    thresholds = [{"color": color, "value": value[0] if value else None} for color, *value in steps]
    found: Json = {"unit": source.get("unit", "short"), "thresholds": {"mode": "absolute", "steps": thresholds}}
    found["color"] = {"mode": "thresholds" if kind == "stat" else "palette-classic"}
    # A rate or a level that is never less than 0 begins there, so that two graphs compare.
    if kind == "timeseries":
        found["min"] = source.get("min", 0)
        lines = {"drawStyle": "line", "fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
        found["custom"] = {**lines, "thresholdsStyle": {"mode": "line" if len(steps) > 1 and steps[-1][1] >= 0.05 else "off"}}
    for ours, theirs in (("max", "max"), ("decimals", "decimals"), ("empty", "noValue")):
        if ours in source:
            found[theirs] = source[ours]
    return found


def targets(kind: str, queries: list[Json]) -> list[Json]:
    found = []
    for at, query in enumerate(queries):
        one: Json = {"datasource": DATASOURCE, "editorMode": "code", "expr": query["expr"], "refId": chr(ord("A") + at)}
        # A table has the values of now. A stat draws a small graph, so it needs a range.
        one |= {"instant": kind == "table", "range": kind != "table"}
        if kind in ("table", "heatmap"):
            one["format"] = kind
        if "legend" in query:
            one["legendFormat"] = query["legend"]
        found.append(one)
    return found


def panel(source: Json, number: int, x: int, y: int) -> Json:
    kind = source.get("type", "timeseries")
    width, height = SIZES[kind]
    found: Json = {
        "id": number,
        "type": kind,
        "title": source["title"],
        "description": described(source),
        "datasource": DATASOURCE,
        "gridPos": {"h": source.get("height", height), "w": source.get("width", width), "x": x, "y": y},
        "fieldConfig": {"defaults": defaults(kind, source), "overrides": []},
        "options": panel_options(kind, source),
        "targets": targets(kind, source["queries"]),
    }
    if kind == "table":
        hidden = {name: True for name in source.get("hide", [])}
        found["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden, "renameByName": source.get("rename", {})}}]
    return found


def row_head(title: str, number: int, y: int) -> Json:
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}, "panels": []}


def panels(rows: list[Json]) -> list[Json]:
    """All panels, from left to right and from top to bottom."""
    found: list[Json] = []
    y = 0
    for row in rows:
        found.append(row_head(row["title"], len(found) + 1, y))
        x, y, tallest = 0, y + 1, 0
        for source in row["panels"]:
            one = panel(source, len(found) + 1, x, y)
            if x + one["gridPos"]["w"] > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
                one["gridPos"] |= {"x": x, "y": y}
            x, tallest = x + one["gridPos"]["w"], max(tallest, one["gridPos"]["h"])
            found.append(one)
        y += tallest
    return found


def variables(sources: list[Json]) -> list[Json]:
    """The data source, and labels to choose from. "All" also selects series without the label."""
    found: list[Json] = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0, "refresh": 1, "regex": ""}]
    for source in sources:
        query = f"label_values({source['metric']}, {source['of']})"
        choice = {"current": {"text": ["All"], "value": ["$__all"]}, "includeAll": True, "multi": True, "allValue": ".*"}
        text = {"name": source["name"], "label": source["label"], "type": "query", "datasource": DATASOURCE, "definition": query}
        found.append({**text, "query": {"qryType": 1, "query": query, "refId": source["name"]}, **choice, "hide": 0, "refresh": 2, "regex": "", "sort": 1})
    return found


def dashboard(source: Json) -> Json:
    others = {"asDropdown": True, "icon": "external link", "includeVars": False, "keepTime": True, "tags": ["tidegate"], "title": "Tidegate", "type": "dashboards"}
    pages = ", ".join(map(document, source["docs"]))
    return {
        "uid": source["uid"],
        "title": source["title"],
        "description": f"{source['description']} Documents: {pages}.",
        "tags": source["tags"],
        "schemaVersion": 39,
        "version": 1,
        "id": None,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-15m", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "annotations": {"list": []},
        "links": [others],
        "templating": {"list": variables(source["variables"])},
        "panels": panels(source["rows"]),
    }


class Folded(str):
    """A text that YAML shows on one line between quotes."""


class Dumper(yaml.SafeDumper):
    """Writes short maps in one line, and texts between quotes as they were written by hand."""


Dumper.add_representer(Folded, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="'"))


def dump(value: Any) -> str:
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=10**6, allow_unicode=True)


def annotations(rule: Json) -> Json:
    runbook = document(f"runbooks.md#{rule['alert'].lower()}")
    return {"summary": Folded(rule["summary"]), "description": Folded(rule["description"]), "runbook": runbook}


def rule_file(source: Json) -> str:
    rules = [
        {
            "alert": rule["alert"],
            "expr": Folded(rule["expr"]),
            "for": rule["for"],
            "labels": {"severity": rule["severity"]},
            "annotations": annotations(rule),
        }
        for rule in source["rules"]
    ]
    head = f"# Made from {GENERATED}.\n{source['comment']}"
    return head + dump({"groups": [{"name": "tidegate", "rules": rules}]})


def expanded(template: str, rule: Json) -> str:
    """A template of an annotation with the labels and the value that the test of its rule expects."""
    expected = rule["fires"]
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: expected["labels"][found[1]], template)
    for sign in ('{{ printf "%.0f" $value }}', "{{ $value }}"):
        text = text.replace(sign, expected.get("value", sign))
    assert "{{" not in text, f"{rule['alert']}: {text}"
    return text


def rule_test(rule: Json, series: Json, alerts: list[Json], name: str) -> Json:
    inputs = [{"series": Folded(one), "values": values} for one, values in series.items()]
    check = {"eval_time": EVALUATED_AT, "alertname": rule["alert"], "exp_alerts": alerts}
    return {"name": f"{rule['alert']} {name}", "interval": "1m", "input_series": inputs, "alert_rule_test": [check]}


def test_file(source: Json) -> str:
    """Tests for `promtool test rules`: for each alert, one in which it fires and one in which it does not."""
    tests = []
    for rule in source["rules"]:
        texts = {name: Folded(expanded(str(text), rule)) for name, text in annotations(rule).items()}
        alert = {"exp_labels": {"severity": rule["severity"], **rule["fires"]["labels"]}, "exp_annotations": texts}
        tests.append(rule_test(rule, rule["fires"]["series"], [alert], "fires"))
        tests.append(rule_test(rule, rule["silent"], [], "does not fire"))
    head = f"# Made from {GENERATED}. Run: promtool test rules tidegate.test.yaml\n"
    return head + dump({"rule_files": ["tidegate.yaml"], "evaluation_interval": "1m", "tests": tests})


def wrapped(text: str, begin: str = "") -> str:
    indent = " " * len(begin)
    return textwrap.fill(text, 128, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def runbooks(source: Json) -> str:
    parts = [
        f"<!-- Made from {GENERATED}. -->",
        "# Runbooks",
        wrapped(
            "One section for each alert of [deploy/alerts](../deploy/alerts): what it means, what to look at, and what to do. The "
            "annotation `runbook` of an alert names its section. [dashboards.md](dashboards.md) says how to load the alerts."
        ),
    ]
    for rule in source["rules"]:
        pending = "at once" if rule["for"] == "0m" else f"after {rule['for'].removesuffix('m')} min"
        parts += [f"## {rule['alert']}", wrapped(f"Severity {rule['severity']}, fires {pending}. {rule['runbook']['means']}")]
        parts.append("Look at:\n\n" + "\n".join(wrapped(text, "- ") for text in rule["runbook"]["look"]))
        parts.append("Do:\n\n" + "\n".join(wrapped(text, "- ") for text in rule["runbook"]["do"]))
    return "\n\n".join(parts) + "\n"


def outputs() -> dict[str, str]:
    """The text of each file, by its path below the root of the repository."""
    found = {}
    for file in sorted((SOURCE / "dashboards").glob("*.yaml")):
        text = json.dumps(dashboard(yaml.safe_load(file.read_text())), indent=2, ensure_ascii=False) + "\n"
        # The chart can only read files of its own folder.
        for folder in ("deploy/grafana", "deploy/helm/tidegate/files/dashboards"):
            found[f"{folder}/{file.stem}.json"] = text
    alerts = yaml.safe_load((SOURCE / "alerts.yaml").read_text())
    found["deploy/alerts/tidegate.yaml"] = found["deploy/helm/tidegate/files/alerts.yaml"] = rule_file(alerts)
    found["deploy/alerts/tidegate.test.yaml"] = test_file(alerts)
    found["docs/runbooks.md"] = runbooks(alerts)
    return found


def main() -> None:
    for path, text in outputs().items():
        file = ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text() != text:
            file.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
