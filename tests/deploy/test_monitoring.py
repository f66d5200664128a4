# SPDX-License-Identifier: Apache-2.0

"""Dashboards, alerts and runbooks: made from one source, complete, and valid for the programs that read them."""

import importlib.util
import itertools
import json
import re
from pathlib import Path

import kit
import pytest
import yaml

SOURCE = kit.DEPLOY / "monitoring"
RULES = yaml.safe_load((kit.DEPLOY / "alerts/tidegate.yaml").read_text())["groups"][0]["rules"]
TESTS = kit.DEPLOY / "alerts/tidegate.test.yaml"
DASHBOARDS = sorted((kit.DEPLOY / "grafana").glob("*.json"))
each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)

# Units that Grafana knows, of those that fit these metrics.
UNITS = {"Bps", "bytes", "cps", "percentunit", "reqps", "s", "short", "µs"}

# The most words of a sentence, as in all documents.
MOST_WORDS = 25


def generated() -> dict[str, str]:
    specification = importlib.util.spec_from_file_location("generate", SOURCE / "generate.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.outputs()


def panels(file: Path) -> list[kit.Object]:
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


def expressions(file: Path) -> list[str]:
    return [target["expr"] for panel in panels(file) for target in panel["targets"]]


def headings(page: str) -> set[str]:
    """The anchors of a document's headings, as code hosts make them."""
    text = re.sub(r"```.*?```", "", (kit.ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_all_files_are_as_new_as_their_source() -> None:
    for path, text in generated().items():
        assert (kit.ROOT / path).read_text() == text, f"{path} is old: run `cargo xtask dashboards`"


def test_no_dashboard_or_alert_is_without_a_source() -> None:
    folders = [kit.DEPLOY / "grafana", kit.DEPLOY / "alerts", kit.CHART / "files"]
    found = {str(file.relative_to(kit.ROOT)) for folder in folders for file in folder.rglob("*") if file.is_file()}
    assert found | {"docs/runbooks.md"} == set(generated())


@each_dashboard
def test_panels_have_ids_of_their_own_and_do_not_overlap(file: Path) -> None:
    whole = json.loads(file.read_text())
    assert len({panel["id"] for panel in whole["panels"]}) == len(whole["panels"])
    taken = set()
    for panel in whole["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboards_have_uids_and_titles_of_their_own() -> None:
    whole = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len(whole) == len({one["uid"] for one in whole}) == len({one["title"] for one in whole}) == 6


@each_dashboard
def test_a_panel_asks_the_chosen_data_source_and_has_a_unit_and_a_description(file: Path) -> None:
    whole = json.loads(file.read_text())
    first = whole["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    sources = [one["datasource"] for panel in panels(file) for one in (panel, *panel["targets"])]
    sources += [one["datasource"] for one in whole["templating"]["list"][1:]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    for panel in panels(file):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        for sentence in re.split(r"[.:] ", panel["description"]):
            assert 0 < len(sentence.split()) <= MOST_WORDS, sentence
        assert panel["description"].endswith("."), panel["title"]
    titles = [panel["title"] for panel in panels(file)]
    assert len(titles) == len(set(titles))


def documents(text: str) -> list[tuple[str, str]]:
    """The documents that a text names, with the anchors of their headings."""
    return re.findall(r"\bdocs/([\w-]+\.md)(?:#([\w-]+))?", text)


def test_documents_that_dashboards_and_alerts_name_have_these_headings() -> None:
    for file in (*DASHBOARDS, kit.DEPLOY / "alerts/tidegate.yaml"):
        found = documents(file.read_text())
        assert found, file
        for page, anchor in found:
            assert not anchor or anchor in headings(page), (file.name, page, anchor)


def test_nothing_is_a_link_unless_somebody_says_where_the_documents_are() -> None:
    for path in generated():
        text = (kit.ROOT / path).read_text()
        assert "runbook_url" not in text and "://" not in text, path
    values = kit.CHART / "ci/defaults.yaml"
    found = kit.template("--values", values, "--set", "alerts.enabled=true,dashboards.enabled=true").stdout
    assert "runbook: docs/runbooks.md#" in found and "What to do: docs/runbooks.md#" in found
    assert "runbook_url" not in found


def names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:tidegate|otelcol)_[a-z_]+\b", expression))


def test_dashboards_and_alerts_name_metrics_that_the_gateway_has() -> None:
    catalogue = (kit.ROOT / "src/telemetry/catalogue.rs").read_text()
    found = [expression for file in DASHBOARDS for expression in expressions(file)] + [rule["expr"] for rule in RULES]
    used = set().union(*map(names, found))
    assert len(used) > 50
    unknown = {name for name in used if f'"{name}"' not in catalogue}
    # Names that go with the next release have a new one.
    renamed = set(re.findall(r'"(\w+)" \["[^"]*"\] "Renamed to', catalogue))
    assert renamed and not unknown and not used & renamed, (unknown, used & renamed)


def test_dashboards_name_metrics_that_dynamo_has() -> None:
    (file,) = Path(kit.program("dynamo")).rglob("prometheus_names.py")
    known = set(re.findall(r'"(\w+)"', file.read_text()))
    (dashboard,) = (one for one in DASHBOARDS if one.stem == "dynamo")
    used = set(re.findall(r"\bdynamo_frontend_(\w+)", " ".join(expressions(dashboard))))
    assert used and {re.sub("_(bucket|sum|count)$", "", name) for name in used} <= known


def test_promtool_accepts_the_alerts_and_their_tests_pass() -> None:
    checked = kit.run(kit.program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", kit.DEPLOY / "alerts/tidegate.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    result = kit.run(kit.program("promtool"), "test", "rules", TESTS)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_tests_of_alerts_pass_on_the_gateways_engine_too() -> None:
    result = kit.run(kit.program("binary"), "test", TESTS)
    assert result.returncode == 0 and f"{2 * len(RULES)} passed" in result.stdout, result.stdout + result.stderr


def test_each_alert_has_a_test_that_fires_and_one_that_does_not() -> None:
    fires = {rule["alert"]: [] for rule in RULES}
    for test in yaml.safe_load(TESTS.read_text())["tests"]:
        (check,) = test["alert_rule_test"]
        assert test["input_series"]
        fires[check["alertname"]].append(len(check["exp_alerts"]))
    assert fires == {rule["alert"]: [1, 0] for rule in RULES}


def test_the_tests_of_alerts_notice_other_conditions(tmp_path: Path) -> None:
    changes = {
        "TidegateDropsItems does not fire": ('reason!~"filtered|', 'reason!~"'),
        "TidegateQueueFills does not fire": ("capacity > 0.8", "capacity > 0.7"),
        "TidegatePagesWait fires": ("wait_seconds > 30", "wait_seconds > 40"),
    }
    text = (kit.DEPLOY / "alerts/tidegate.yaml").read_text()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "tidegate.yaml").write_text(text)
    (tmp_path / TESTS.name).write_text(TESTS.read_text())
    # It takes a fifth of the time of promtool.
    result = kit.run(kit.program("binary"), "test", tmp_path / TESTS.name)
    failed = re.findall(r"^  FAIL  (.*)$", result.stdout, re.MULTILINE)
    assert sorted(failed) == sorted(changes), result.stdout + result.stderr


def test_the_rules_extension_accepts_the_alerts(tmp_path: Path) -> None:
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"prometheus": {"endpoint": "127.0.0.1:0"}},
        "extensions": {"admin": {}, "rules": {"files": [str(kit.DEPLOY / "alerts/tidegate.yaml")]}},
        "service": {"extensions": ["admin", "rules"], "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus"]}}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    result = kit.validate([tmp_path / "config.yaml"], {})
    assert result.returncode == 0 and not result.stderr, result.stderr


def test_each_alert_names_a_runbook_of_its_own() -> None:
    assert [rule["annotations"]["runbook"] for rule in RULES] == [f"docs/runbooks.md#{rule['alert'].lower()}" for rule in RULES]
    assert len(headings("runbooks.md")) == len(RULES) + 1


def test_the_alert_about_series_says_what_the_command_shows() -> None:
    said = {rule["alert"]: rule["annotations"]["description"] for rule in RULES}
    found = {alert for alert, text in said.items() if "`tidegate cardinality`" in text}
    assert found == {"TidegateSeriesLimit"}
    assert "`tidegate cardinality` shows the metrics and labels with the most series." in said["TidegateSeriesLimit"]


def test_runbooks_name_dashboards_panels_and_alerts_that_exist() -> None:
    text = re.sub(r"\s+", " ", (kit.ROOT / "docs/runbooks.md").read_text())
    whole = [json.loads(file.read_text()) for file in DASHBOARDS]
    titles = {one["title"] for one in whole} | {panel["title"] for one in whole for panel in one["panels"]}
    # A row has its subject before the colon.
    titles |= {title.partition(":")[0] for title in titles}
    quoted = re.findall(r'"([A-Z][^"]*)"', text)
    # The page of Prometheus itself.
    assert len(quoted) > 10 and set(quoted) - titles == {"Targets"}
    assert set(re.findall(r"\bTidegate[A-Z]\w+", text)) == {rule["alert"] for rule in RULES}


def test_the_chart_ships_the_same_rules_and_dashboards_with_its_links() -> None:
    values = kit.CHART / "ci/everything.yaml"
    url = yaml.safe_load(values.read_text())["docsUrl"]
    (rules,) = kit.of_kind(values, "PrometheusRule")
    for shipped, ours in zip(rules["spec"]["groups"][0]["rules"], RULES, strict=True):
        annotations = {name: text.replace("docs/", f"{url}/") for name, text in ours["annotations"].items()}
        annotations["runbook_url"] = annotations.pop("runbook")
        assert annotations["runbook_url"].startswith(f"{url}/runbooks.md#")
        assert shipped == ours | {"annotations": annotations}
    maps = [found for found in kit.of_kind(values, "ConfigMap") if "grafana_dashboard" in found["metadata"]["labels"]]
    data = {name: text for found in maps for name, text in found["data"].items()}
    assert set(data) == {f"tidegate-{file.name}" for file in DASHBOARDS}
    for file in DASHBOARDS:
        assert json.loads(data[f"tidegate-{file.name}"]) == json.loads(file.read_text().replace("docs/", f"{url}/"))


def test_the_chart_makes_no_rules_or_dashboards_unless_asked() -> None:
    found = kit.of_kind(kit.CHART / "ci/defaults.yaml", "ConfigMap", "PrometheusRule")
    assert not [one["metadata"]["name"] for one in found if one["kind"] != "ConfigMap" or "dashboard" in one["metadata"]["name"]]
