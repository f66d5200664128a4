# SPDX-License-Identifier: Apache-2.0

"""The alerts of the chart, evaluated by promtool over series that fire them and series that do not."""

import re
from pathlib import Path

import kit
import pytest
import yaml

FILE = kit.CHART / "files/alerts.yaml"
RULES = yaml.safe_load(FILE.read_text())["groups"][0]["rules"]

# By alert: series that fire it, series beside them that do not, and when it is to fire. A value is `start+step x times`.
POD = 'namespace="a", instance="g-0"'
GROWS, STAYS = "0+1x60", "7x60"
CASES = {
    "TidegateDropsItems": (
        {f'tidegate_dropped_items_total{{{POD}, component="exporters::otlp", signal="metrics", reason="queue_full"}}': GROWS},
        {
            f'tidegate_dropped_items_total{{{POD}, component="processors::filter", signal="metrics", reason="filtered"}}': GROWS,
            f'tidegate_dropped_items_total{{{POD}, component="exporters::otlp", signal="logs", reason="invalid"}}': STAYS,
        },
    ),
    "TidegateDestinationFails": (
        {f'tidegate_exporter_failing{{{POD}, component="exporters::otlp", reason="denied"}}': "1x60"},
        {f'tidegate_exporter_failing{{{POD}, component="exporters::otlp/b", reason="denied"}}': "0x60"},
    ),
    "TidegateQueueFills": (
        {
            f'otelcol_exporter_queue_size{{{POD}, exporter="otlp", data_type="metrics"}}': "81x60",
            f'otelcol_exporter_queue_capacity{{{POD}, exporter="otlp", data_type="metrics"}}': "100x60",
        },
        {
            f'otelcol_exporter_queue_size{{{POD}, exporter="b", data_type="metrics"}}': "80x60",
            f'otelcol_exporter_queue_capacity{{{POD}, exporter="b", data_type="metrics"}}': "100x60",
        },
    ),
    "TidegateRefusesForMemory": (
        {f'tidegate_memory_refusals_total{{{POD}, receiver="otlp", reason="memory"}}': GROWS},
        {f'tidegate_memory_refusals_total{{{POD}, receiver="b", reason="memory"}}': STAYS},
    ),
    "TidegateLosesRingEvents": (
        {f'tidegate_nixl_ring_suspected_loss_total{{{POD}, ring="a"}}': GROWS},
        {'tidegate_nixl_ring_lost_events_total{namespace="a", instance="g-1", ring="a", reason="full"}': STAYS},
    ),
    "TidegateCanNotReadFiles": (
        {f'tidegate_shm_refused{{{POD}, receiver="shm", reason="owner"}}': "1x60"},
        {'tidegate_shm_unread_files{namespace="a", instance="g-1", receiver="shm"}': "0x60"},
    ),
    "TidegateScrapeFails": (
        {f'tidegate_scrape_failures_total{{{POD}, job="pods", reason="timeout"}}': GROWS},
        {f'tidegate_scrape_failures_total{{{POD}, job="b", reason="timeout"}}': STAYS},
    ),
    "TidegateStorageFails": (
        {f'tidegate_storage_lost_records_total{{{POD}, component="exporters::otlp"}}': GROWS},
        {f'tidegate_storage_failures_total{{{POD}, component="exporters::b"}}': STAYS},
    ),
    "TidegateReplicaNotReady": (
        {f'tidegate_cluster_ready{{{POD}, receiver="partials"}}': "0x60"},
        {'tidegate_cluster_ready{namespace="a", instance="g-1", receiver="partials"}': "1x60"},
    ),
    "TidegateClusterPartial": (
        {
            f'tidegate_cluster_producers{{{POD}, receiver="partials", state="reporting"}}': "2x60",
            f'tidegate_cluster_producers{{{POD}, receiver="partials", state="expected"}}': "3x60",
        },
        {
            'tidegate_cluster_producers{namespace="a", instance="g-1", receiver="partials", state="reporting"}': "3x60",
            'tidegate_cluster_producers{namespace="a", instance="g-1", receiver="partials", state="expected"}': "3x60",
        },
    ),
    "TidegateClusterMessagesUnreadable": (
        {f'tidegate_cluster_unreadable_messages_total{{{POD}, producer="node-a", reason="unreadable"}}': GROWS},
        {f'tidegate_cluster_unreadable_messages_total{{{POD}, producer="node-b", reason="unreadable"}}': "0x60"},
    ),
    "TidegateClusterWithoutLeader": (
        {f'tidegate_cluster_leader{{{POD}, receiver="partials"}}': "0x60"},
        {
            'tidegate_cluster_leader{namespace="b", instance="g-0", receiver="partials"}': "0x60",
            'tidegate_cluster_leader{namespace="b", instance="g-1", receiver="partials"}': "1x60",
        },
    ),
    "TidegatePagesWait": (
        {f'tidegate_partials_oldest_wait_seconds{{{POD}, exporter="partials"}}': "31x60"},
        {'tidegate_partials_oldest_wait_seconds{namespace="a", instance="g-1", exporter="partials"}': "29x60"},
    ),
    "TidegateDataScrapedTwice": (
        {
            'up{namespace="a", job="pods", pod="g-0", container="tidegate", endpoint="metrics"}': "1x60",
            'up{namespace="a", job="pods", pod="g-1", container="tidegate", endpoint="metrics"}': "1x60",
        },
        {
            'up{namespace="b", job="service", service="g", endpoint="metrics"}': "1x60",
            'up{namespace="b", job="telemetry", pod="g-0", container="tidegate", endpoint="telemetry"}': "1x60",
            'up{namespace="b", job="telemetry", pod="g-1", container="tidegate", endpoint="telemetry"}': "1x60",
        },
    ),
}


def test_each_alert_has_a_case_and_is_a_valid_rule() -> None:
    assert list(CASES) == [rule["alert"] for rule in RULES]
    result = kit.run(kit.program("promtool"), "check", "rules", FILE)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_fires_for_its_series_and_for_no_other(rule: kit.Object, tmp_path: Path) -> None:
    for firing, series in zip((True, False), CASES[rule["alert"]], strict=True):
        # promtool compares whole alerts. An alert that is not expected has its labels and annotations in the output.
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        case = {"interval": "1m", "input_series": inputs, "alert_rule_test": [{"eval_time": "40m", "alertname": rule["alert"], "exp_alerts": []}]}
        file = tmp_path / f"{firing}.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [case]}))
        result = kit.run(kit.program("promtool"), "test", "rules", file)
        text = result.stdout + result.stderr
        assert (result.returncode != 0) == firing, text
        if firing:
            assert text.count("alertname=") == 1 and "<no value>" not in text, text


def test_alerts_name_metrics_that_the_gateway_has() -> None:
    catalogue = (kit.ROOT / "src/telemetry/catalogue.rs").read_text()
    for rule in RULES:
        names = re.findall(r"\b(?:tidegate|otelcol)_[a-z_]+\b", rule["expr"])
        assert names or rule["alert"] == "TidegateDataScrapedTwice", rule
        for name in names:
            assert f'"{name}"' in catalogue, f"{rule['alert']}: {name}"


def test_the_chart_ships_the_same_rules() -> None:
    (rendered,) = kit.of_kind(kit.CHART / "ci/everything.yaml", "PrometheusRule")
    assert rendered["spec"]["groups"][0]["rules"] == RULES
    assert not kit.of_kind(kit.CHART / "ci/defaults.yaml", "PrometheusRule")
