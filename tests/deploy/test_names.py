# SPDX-License-Identifier: Apache-2.0

"""Metrics of other projects: dashboards, documents, examples and simulated pages use names, kinds and labels of `names.yaml`."""

import json
import re
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import engines
import kit
import promql
import pytest
import yaml

LIST = Path(__file__).parent / "names.yaml"
ENTRIES = yaml.safe_load(LIST.read_text())
DASHBOARDS = sorted((kit.DEPLOY / "grafana").glob("*.json"))
each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)

# `test_monitoring.py` compares the gateway's own metrics with its catalogue.
OWN = ("tidegate_", "otelcol_")

# Labels of every scraped series.
TARGET = {"instance", "job"}

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

# The unit of a panel of which all metrics are of such a family.
UNITS = {"_seconds": "s", "_us": "µs", "_perc": "percentunit"}

# Rules of `aggregate` sum the counters of NIXL's agents by node.
AGENT, NODE = "agent_", "nixl_node_"

MACROS = {"$__rate_interval": "10s", "$model": ".*", "$instance": ".*"}


class Metric(NamedTuple):
    family: str
    kind: str
    labels: frozenset[str]


def families() -> Iterator[Metric]:
    for entry in ENTRIES:
        for name, (kind, *more) in entry["metrics"].items():
            yield Metric(entry["prefix"] + name, kind, frozenset([*entry["labels"], *more]))
            if entry["prefix"] == AGENT and kind == "counter":
                yield Metric(NODE + name, kind, frozenset(["hostname", *more]))


def samples() -> dict[str, Metric]:
    found = {}
    for metric in families():
        for suffix in SUFFIXES[metric.kind]:
            labels = metric.labels | ({"le"} if suffix == "_bucket" else set())
            found[metric.family + suffix] = metric._replace(labels=labels)
    return found


def composites() -> dict[str, Metric]:
    """Those of the example configurations. The labels of an expression are not checked here: those beside it are the same."""
    found = {}
    for name in ("autoscaling.yaml", "quickstart.yaml"):
        config = yaml.safe_load((kit.ROOT / "config" / name).read_text())
        for one in config["processors"]["composite"]["composites"]:
            by = promql.parse(one["expr"]).groups if "expr" in one else one["by"]
            found[one["name"]] = Metric(one["name"], "gauge", frozenset(by))
    return found


SAMPLES = samples()
KNOWN = SAMPLES | composites()


def panels(file: Path) -> list[kit.Object]:
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


def selected(text: str) -> list[promql.Selector]:
    """The series that a query selects, but those of the gateway about itself."""
    return [one for one in promql.parse(text).selectors if not one.metric.startswith(OWN)]


def problems(text: str, legend: str = "") -> list[str]:
    """What is wrong with the names of a query, by the list."""
    query, found = promql.parse(text), []
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    for one in selected(text):
        metric = KNOWN.get(one.metric)
        if metric is None:
            found.append(f"{one.metric} is not in {LIST.name}")
            continue
        labels = metric.labels | TARGET
        # Only what is not grouped shows labels of the series itself.
        used = one.labels | query.groups | (set() if query.groups else shown)
        found += [f"{one.metric} has no label {label}" for label in sorted(used - labels)]
        is_bucket = one.metric.endswith("_bucket")
        if one.function in promql.RATES and metric.kind == "gauge":
            found.append(f"{one.function} of the gauge {one.metric}")
        if is_bucket and one.function not in promql.RATES:
            found.append(f"{one.metric} without a rate")
        if "histogram_quantile" in query.functions and not (is_bucket and "le" in query.groups):
            found.append(f"a quantile of {one.metric}, which has no buckets, or not by `le`")
    if query.groups:
        found += [f"the legend shows {label}, by which nothing is grouped" for label in sorted(shown - query.groups)]
    return found


def expression(stem: str, title: str, number: int = 0) -> str:
    """A query of a panel, for all values of its variables."""
    (panel,) = (one for one in panels(kit.DEPLOY / f"grafana/{stem}.json") if one["title"] == title)
    text: str = panel["targets"][number]["expr"]
    for macro, value in MACROS.items():
        text = text.replace(macro, value)
    return text


def test_the_list_says_where_each_name_is_from() -> None:
    names = [sample for metric in families() for sample in {metric.family + suffix for suffix in SUFFIXES[metric.kind]}]
    assert len(names) == len(set(names)) > 60
    for entry in ENTRIES:
        assert entry["project"] and entry["source"] and re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])
        assert entry["labels"] == sorted(entry["labels"]) and list(entry["metrics"]) == sorted(entry["metrics"])


@each_dashboard
def test_panels_have_known_names_kinds_and_labels(file: Path) -> None:
    for panel in panels(file):
        for target in panel["targets"]:
            found = problems(target["expr"], target.get("legendFormat", ""))
            assert not found, (panel["title"], target["expr"], found)


@each_dashboard
def test_variables_ask_for_known_labels(file: Path) -> None:
    for variable in json.loads(file.read_text())["templating"]["list"][1:]:
        text, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
        assert not problems(text, f"{{{{{label}}}}}"), variable["name"]


@each_dashboard
def test_the_unit_of_a_panel_is_that_of_its_metrics(file: Path) -> None:
    for panel in panels(file):
        used = {KNOWN[one.metric].family for target in panel["targets"] for one in selected(target["expr"])}
        for suffix, unit in UNITS.items():
            if used and all(name.endswith(suffix) for name in used):
                assert panel["fieldConfig"]["defaults"]["unit"] == unit, panel["title"]


def test_dashboards_of_engines_name_only_metrics_of_the_list() -> None:
    used = {one.metric for file in DASHBOARDS for panel in panels(file) for target in panel["targets"] for one in selected(target["expr"])}
    assert len(used & set(SAMPLES)) > 50


@pytest.mark.parametrize(
    ("text", "legend", "problem"),
    [
        ("vllm:kv_cache_usage", "", "vllm:kv_cache_usage is not in names.yaml"),
        ("vllm:request_success", "", "vllm:request_success is not in names.yaml"),
        ('vllm:num_requests_running{model="a"}', "", "vllm:num_requests_running has no label model"),
        ("sum by (tp_rank) (rate(sglang:num_requests_total[1m]))", "", "sglang:num_requests_total has no label tp_rank"),
        ("rate(sglang:token_usage[1m])", "", "rate of the gauge sglang:token_usage"),
        ("sum by (model_name) (vllm:num_requests_running)", "{{engine}}", "the legend shows engine, by which nothing is grouped"),
        ("vllm:num_requests_running", "{{model}}", "vllm:num_requests_running has no label model"),
        ("sum(agent_xfer_time_us_bucket)", "", "agent_xfer_time_us_bucket without a rate"),
    ],
)
def test_a_wrong_name_is_a_problem(text: str, legend: str, problem: str) -> None:
    assert problems(text, legend) == [problem]


# A glob of an example selects the metrics that begin like it.
NAMED = re.compile(r"\b(?:vllm|sglang):[a-z]\w*\*?|\bdynamo_frontend_\w+\*?")

# A name that shows how names are escaped.
PLACEHOLDERS = {"vllm:x"}

FOLDERS = ("*.md", "config/*.yaml", "deploy/**/*.yaml", "docs/*.md", "docs/guides/*.md", "docs/reference/**/*.md", "examples/**/*.yaml")


def is_known(name: str) -> bool:
    names = {*SAMPLES, *(metric.family for metric in families() if metric.kind != "counter")}
    return name in names if not name.endswith("*") else any(known.startswith(name[:-1]) for known in names)


def test_documents_and_examples_have_known_names() -> None:
    found = set()
    for path in {path for folder in FOLDERS for path in kit.ROOT.glob(folder)}:
        # The changelog describes earlier versions too.
        if path.name != "CHANGELOG.md":
            found |= {(str(path.relative_to(kit.ROOT)), name) for name in NAMED.findall(path.read_text())}
    assert len({name for _, name in found}) > 40
    assert not {(path, name) for path, name in found if name not in PLACEHOLDERS and not is_known(name)}


def test_the_autoscaling_example_keeps_the_labels_of_its_dashboard() -> None:
    config = yaml.safe_load((kit.ROOT / "config/autoscaling.yaml").read_text())
    kept = set(config["processors"]["aggregate"]["rules"][-1]["by"]) | {"le"}
    used: set[str] = set()
    for panel in panels(kit.DEPLOY / "grafana/vllm.json"):
        for target in panel["targets"]:
            query = promql.parse(target["expr"])
            used |= query.groups.union(*(one.labels for one in query.selectors))
    assert used <= kept, used - kept


@pytest.mark.parametrize("page", [engines.vllm, engines.sglang, engines.dynamo, engines.dynamo_worker], ids=lambda page: page.__name__)
def test_simulated_engines_have_known_names_kinds_and_labels(page: engines.Page) -> None:
    text = page(10)
    kinds = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
    (added,) = (set(entry["labels"]) for entry in ENTRIES if not entry["prefix"])
    lines = re.findall(r"(?m)^([^#\s{]+)\{(.*)\} \S+$", text)
    assert len(lines) > len(kinds) > 8
    for name, labels in lines:
        metric = SAMPLES[name]
        assert kinds[metric.family + ("_total" if metric.kind == "counter" else "")] == metric.kind
        allowed = metric.labels | (added if page is engines.dynamo_worker else set())
        assert set(re.findall(r'(\w+)="', labels)) <= allowed, (name, labels)


# Queries, and the value of each series of their answers.
Answers = list[tuple[str, dict[str, float]]]


def expect(tmp_path: Path, series: dict[str, str], expected: Answers) -> None:
    """The answers of Prometheus to queries after a minute of series, one value each second."""
    asked = [
        {"expr": text, "eval_time": "60s", "exp_samples": [{"labels": labels, "value": value} for labels, value in answer.items()]}
        for text, answer in expected
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"evaluation_interval": "1s", "tests": [{"interval": "1s", "input_series": inputs, "promql_expr_test": asked}]}
    file = tmp_path / "names.test.yaml"
    file.write_text(yaml.safe_dump(test))
    result = kit.run(kit.program("promtool"), "test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


def test_panels_of_vllm_take_old_names_and_new_ones(tmp_path: Path) -> None:
    """One server has the old names, one the new ones, and one both."""
    old: dict[str, Any] = {"usage": ("gpu_cache_usage_perc", 0.5), "gap": "time_per_output_token_seconds", "cache": "gpu_prefix_cache"}
    new: dict[str, Any] = {"usage": ("kv_cache_usage_perc", 0.75), "gap": "inter_token_latency_seconds", "cache": "prefix_cache"}
    series = {}
    for server, versions in {"old": (old,), "new": (new,), "both": (old, new)}.items():
        labels = f'model_name="m", engine="0", instance="{server}"'
        for version in versions:
            name, usage = version["usage"]
            series[f"vllm:{name}{{{labels}}}"] = f"{usage}x60"
            for bound, count in (("0.1", 5), ("0.2", 10), ("+Inf", 10)):
                series[f'vllm:{version["gap"]}_bucket{{{labels}, le="{bound}"}}'] = f"0+{count}x60"
            series[f'vllm:{version["cache"]}_hits_total{{{labels}}}'] = "0+4x60"
            series[f'vllm:{version["cache"]}_queries_total{{{labels}}}'] = "0+10x60"
    hits = expression("vllm", "Caches", 1)
    expected: Answers = [
        (expression("vllm", "Caches"), {'{instance="old"}': 0.5, '{instance="new"}': 0.75, '{instance="both"}': 0.75}),
        (expression("vllm", "Fullest cache"), {"{}": 0.75}),
        (expression("vllm", "Time between tokens"), {'{model_name="m"}': 0.1}),
        (hits, {"{}": 0.4}),
        (f"sum({hits.partition(' / ')[0]})", {"{}": 12}),
    ]
    expect(tmp_path, series, expected)


def test_a_request_that_waits_in_sglang_counts_once(tmp_path: Path) -> None:
    """One server has two stages, two ranks in each and two priorities, and another has two data-parallel ranks."""
    queue = 'sglang:num_queue_reqs{model_name="m", instance='
    series = {f'{queue}"stages", pp_rank="{stage}", tp_rank="{rank}"}}': "5x60" for stage in (0, 1) for rank in (0, 1)}
    series |= {f'{queue}"stages", pp_rank="0", tp_rank="0", priority="{priority}"}}': f"{priority}x60" for priority in (2, 3)}
    series |= {f'{queue}"copies", dp_rank="{rank}", tp_rank="{rank}"}}': f"{rank + 3}x60" for rank in (0, 1)}
    expected: Answers = [
        (expression("sglang", "Requests that wait"), {"{}": 12}),
        (expression("sglang", "Requests, running and waiting", 1), {'{instance="stages"}': 5, '{instance="copies"}': 7}),
    ]
    expect(tmp_path, series, expected)
