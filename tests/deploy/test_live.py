# SPDX-License-Identifier: Apache-2.0

"""Every query of every dashboard and alert, on gateways that run: their own API, and a Prometheus that scrapes them."""

import json
import math
import time
from pathlib import Path
from typing import Any, Iterator

import kit
import live
import pytest
import yaml

DASHBOARDS = sorted((kit.DEPLOY / "grafana").glob("*.json"))
ALERTS = yaml.safe_load((kit.DEPLOY / "alerts/tidegate.yaml").read_text())["groups"][0]["rules"]
each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)
each_reader = pytest.mark.parametrize("reader", [0, 1], ids=["gateway", "prometheus"])

# What the broken vendor and the killed producer cause. The others have no cause here.
FIRING = {"TidegateDropsItems", "TidegateDestinationFails", "TidegateQueueFills", "TidegateClusterPartial"}

# The most seconds until all gateways have data; some are enough, unless the machine has much else to do.
SECONDS = 120

# What Grafana puts into a query for a graph of the last 10 s: 4 scrapes, and one more for the edges.
SPAN = 10
MACROS = {"$__rate_interval": f"{5 * live.INTERVAL}s", "$__range": f"{SPAN}s"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.Fleet]:
    with live.Fleet(tmp_path_factory.mktemp("fleet")) as found:
        yield found


def queries(file: Path) -> dict[str, str]:
    """The queries of all panels as Grafana sends them, with all values of each variable."""
    whole = json.loads(file.read_text())
    macros = MACROS | {f"${variable['name']}": ".*" for variable in whole["templating"]["list"][1:]}
    found = {}
    for panel in whole["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"]
            for macro, value in macros.items():
                text = text.replace(macro, value)
            assert "$" not in text, text
            found[f"{panel['title']} {target['refId']}"] = text
    return found


def has_points(series: list[Any]) -> bool:
    return any(math.isfinite(float(value)) for one in series for _, value in one["values"])


def assert_all_have_points(reader: live.Reader, asked: dict[str, str]) -> None:
    """Asks until each query has an answer with a number. An error of the API fails at once."""
    empty = dict(asked)
    deadline = time.monotonic() + SECONDS
    while empty and time.monotonic() < deadline:
        empty = {name: query for name, query in empty.items() if not has_points(reader.graph(query, SPAN))}
        time.sleep(0.5 if empty else 0)
    assert not empty, f"{reader.name}: no data for {json.dumps(empty, indent=1)}"


@each_reader
@each_dashboard
def test_no_panel_is_empty_or_has_an_error(fleet: live.Fleet, file: Path, reader: int) -> None:
    assert_all_have_points(fleet.readers[reader], queries(file))


@pytest.mark.parametrize(("stem", "gateway"), [("nixl", "quickstart"), ("vllm", "autoscaling")])
def test_a_gateway_answers_for_its_own_data(fleet: live.Fleet, stem: str, gateway: str) -> None:
    (file,) = (one for one in DASHBOARDS if one.stem == stem)
    # The metrics of the gateway about itself are on another page.
    asked = {name: query for name, query in queries(file).items() if "tidegate_" not in query}
    assert len(asked) > 20
    assert_all_have_points(live.Reader(gateway, fleet.gateways[gateway]["ADMIN_ENDPOINT"]), asked)


@each_reader
@each_dashboard
def test_each_variable_has_values_that_select(fleet: live.Fleet, file: Path, reader: int) -> None:
    chosen: dict[str, str] = {}
    for variable in json.loads(file.read_text())["templating"]["list"][1:]:
        selector, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
        for name, value in chosen.items():
            selector = selector.replace(f"${name}", value)
        ask = lambda: fleet.readers[reader].get(f"label/{label}/values", **{"match[]": selector})
        values = live.wait_for(f"values of {label} of {selector}", ask)
        assert all(values), values
        chosen[variable["name"]] = values[0]


@each_reader
def test_alerts_fire_for_vendor_and_producer_and_for_nothing_else(fleet: live.Fleet, reader: int) -> None:
    found = fleet.readers[reader]

    def firing() -> set[str]:
        return {rule["alert"] for rule in ALERTS if found.get("query", query=rule["expr"])["result"]}

    # Targets that start later than their readers cause the one, and a machine with too much to do the other.
    possible = {"TidegateScrapeFails", "TidegateLosesRingEvents"}
    live.wait_for("the alerts of the broken vendor and the killed producer", lambda: firing() - possible == FIRING, SECONDS)


@each_reader
def test_the_cluster_has_two_replicas_a_leader_and_a_silent_producer(fleet: live.Fleet, reader: int) -> None:
    asked = queries(kit.DEPLOY / "grafana/cluster.json")
    expected = {"Replicas ready A": 2, "Leaders A": 1, "Producers that are silent A": 1}
    found = fleet.readers[reader]
    live.wait_for(f"{expected}", lambda: {panel: found.value(asked[panel]) for panel in expected} == expected, SECONDS)


def test_prometheus_evaluates_all_alerts(fleet: live.Fleet) -> None:
    def rules() -> list[kit.Object]:
        (group,) = fleet.readers[1].get("rules")["groups"]
        return group["rules"] if all(rule["health"] == "ok" for rule in group["rules"]) else []

    assert len(live.wait_for("the rules", rules)) == len(ALERTS)


@each_reader
def test_the_ledger_of_each_gateway_adds_up(fleet: live.Fleet, reader: int) -> None:
    (query,) = (query for name, query in queries(kit.DEPLOY / "grafana/gateway.json").items() if name.startswith("Difference"))

    # A sample may be between two counters of one scrape. After a loss, none is 0 again.
    even: set[str] = set()

    def all_even() -> bool:
        for one in fleet.readers[reader].get("query", query=query)["result"]:
            if float(one["value"][1]) == 0:
                even.add(one["metric"]["instance"])
        return len(even) == len(fleet.gateways)

    live.wait_for("a ledger that adds up, of each gateway", all_even)


@each_reader
@each_dashboard
def test_queries_parse_alike(fleet: live.Fleet, file: Path, reader: int) -> None:
    for name, query in queries(file).items():
        assert fleet.readers[reader].get("parse_query", query=query)["type"], name
