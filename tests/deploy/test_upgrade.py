# SPDX-License-Identifier: Apache-2.0

"""Upgrades from each chart of tests/deploy/charts to the chart of today. Kubernetes refuses changes of some fields, and users keep their values."""

import copy
import os
import shutil
from pathlib import Path
from typing import Any, Callable

import frozen
import kit
import pytest
import yaml

# Objects that a version no longer has, with the reason: (from version, kind, end of the name).
REMOVED: dict[tuple[str, str, str], str] = {}

each_version = pytest.mark.parametrize("version", frozen.versions())
each_values = pytest.mark.parametrize(
    ("version", "values"),
    [pytest.param(version, values, id=f"{version}-{values.stem}") for version in frozen.versions() for values in frozen.matrix(version)],
)

# Fields that the API server refuses to change.
FIXED = {
    "ClusterRoleBinding": ["roleRef"],
    "DaemonSet": ["spec.selector"],
    "Deployment": ["spec.selector"],
    "RoleBinding": ["roleRef"],
    "Service": ["spec.clusterIP"],
    "StatefulSet": ["spec.podManagementPolicy", "spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"],
}


def key(found: kit.Object) -> tuple[str, str, str]:
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def at(found: kit.Object, path: str) -> Any:
    for part in path.split("."):
        found = found.get(part, {})
    return found


def ports(service: kit.Object) -> set[tuple[str, int]]:
    return {(port["name"], port["port"]) for port in service["spec"]["ports"]}


def state(workload: kit.Object) -> dict[str, str]:
    """The directories of the volumes that outlive a pod."""
    claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
    shared = [volume["name"] for volume in kit.pod(workload)["volumes"] if "hostPath" in volume]
    return {mount["name"]: mount["mountPath"] for mount in kit.container(workload)["volumeMounts"] if mount["name"] in claims + shared}


def losses(version: str, before: list[kit.Object], after: list[kit.Object]) -> list[str]:
    """What an upgrade would lose or the API server refuse."""
    new = {key(found): found for found in after}
    found = []
    for each in before:
        kind, _, name = key(each)
        there = new.get(key(each))
        if there is None:
            if not any((version, kind) == removed[:2] and name.endswith(removed[2]) for removed in REMOVED):
                found.append(f"{kind} {name} is gone")
            continue
        found += [f"{kind} {name}: {path} changes" for path in FIXED.get(kind, []) if at(each, path) != at(there, path)]
        if kind == "Service" and not ports(each) <= ports(there):
            found.append(f"{kind} {name}: a port is gone")
        if kind in ("DaemonSet", "StatefulSet") and not state(each).items() <= state(there).items():
            found.append(f"{kind} {name}: a directory moves")
    return found


@each_version
def test_a_frozen_chart_is_what_helm_packages(version: str, tmp_path: Path) -> None:
    chart = frozen.unpack(version, tmp_path / "unpacked")
    assert frozen.version(chart) == version
    (tmp_path / "made").mkdir()
    assert frozen.members(frozen.package(chart, tmp_path / "made")) == frozen.members(frozen.archive(version))


def test_the_chart_of_today_is_newer_than_each_frozen_one(tmp_path: Path) -> None:
    if "FREEZE_CHART" in os.environ:
        frozen.freeze(tmp_path)
        return
    newest = frozen.versions()[-1]
    today = frozen.version(kit.CHART)
    assert frozen.ordered(today) > frozen.ordered(newest), f"{newest} is frozen: raise `version` in Chart.yaml"


@each_values
def test_old_values_still_render(version: str, values: Path) -> None:
    result = kit.run(kit.program("helm"), "lint", "--strict", "--quiet", kit.CHART, "--values", values)
    assert result.returncode == 0, result.stdout + result.stderr
    assert kit.objects(values)


@each_values
def test_an_upgrade_loses_nothing_and_changes_no_fixed_field(version: str, values: Path) -> None:
    before = frozen.objects(version, values)
    assert len(before) > 5
    assert not losses(version, before, kit.objects(values))


@each_values
def test_pods_of_the_old_version_stay_in_their_services(version: str, values: Path) -> None:
    """While an update replaces pods one by one, the Services, policies and budgets of the new version must select both."""
    before = [found for found in frozen.objects(version, values) if found["kind"] in ("DaemonSet", "StatefulSet")]
    for found in kit.of_kind(values, "Service", "PodDisruptionBudget"):
        selector = found["spec"]["selector"]
        assert len(kit.selected(selector, before)) == 1, key(found)
    for policy in kit.of_kind(values, "NetworkPolicy"):
        assert len(kit.selected(policy["spec"]["podSelector"], before)) == 1, key(policy)


@each_version
def test_each_old_value_is_still_a_value(version: str, tmp_path: Path) -> None:
    def paths(values: Any, prefix: str = "") -> set[str]:
        if not isinstance(values, dict):
            return set()
        return {f"{prefix}{name}" for name in values} | {path for name, value in values.items() for path in paths(value, f"{prefix}{name}.")}

    before = yaml.safe_load((frozen.unpack(version, tmp_path) / "values.yaml").read_text())
    today = yaml.safe_load((kit.CHART / "values.yaml").read_text())
    assert not paths(before) - paths(today)


@each_values
def test_an_upgrade_that_reuses_all_old_values_is_the_same(version: str, values: Path, tmp_path: Path) -> None:
    """With `--reuse-values`, Helm takes the defaults of the old chart, so values that are new are absent."""
    chart = shutil.copytree(kit.CHART, tmp_path / "tidegate")
    shutil.copyfile(frozen.unpack(version, tmp_path / "old") / "values.yaml", chart / "values.yaml")
    result = kit.run(kit.program("helm"), "template", "prod", chart, "--namespace", kit.NAMESPACE, "--values", values)
    assert result.returncode == 0, result.stderr
    assert kit.documents(result.stdout) == kit.objects(values)


@each_values
def test_the_new_version_accepts_the_old_configuration(version: str, values: Path, tmp_path: Path) -> None:
    """Users who have their own ConfigMap began with that of the chart."""
    checked = 0
    for found in frozen.objects(version, values):
        if found["kind"] == "ConfigMap" and "config.yaml" in found["data"]:
            files = []
            for name, text in sorted(found["data"].items()):
                (tmp_path / name).write_text(text)
                files.append(tmp_path / name)
            names = ("NODE_NAME", "POD_NAME", "CLUSTER_TOKEN", "CLUSTER_USERNAME", "CLUSTER_PASSWORD")
            keys = [f"VENDOR_KEY_{name}" for name in ("DATADOG", "OWN_API", "GRAFANA", "HONEYCOMB", "NEWRELIC", "COLLECTOR")]
            result = kit.validate(files, {name: "instance:key" for name in (*names, *keys)})
            assert result.returncode == 0 and not result.stderr, result.stderr
            checked += 1
    assert checked or "existingConfigMap" in values.read_text()


def of(kind: str, change: Callable[[kit.Object], Any]) -> Callable[[list[kit.Object]], None]:
    """A change of the first object of a kind."""

    def changed(objects: list[kit.Object]) -> None:
        change(next(found for found in objects if found["kind"] == kind))

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of("StatefulSet", lambda found: found["spec"].update(serviceName="other")), "spec.serviceName changes"),
        (of("StatefulSet", lambda found: found["spec"].update(podManagementPolicy="OrderedReady")), "spec.podManagementPolicy changes"),
        (of("StatefulSet", lambda found: found["spec"]["volumeClaimTemplates"][0]["metadata"].update(labels={})), "spec.volumeClaimTemplates changes"),
        (of("StatefulSet", lambda found: kit.container(found)["volumeMounts"][-1].update(mountPath="/data")), "a directory moves"),
        (of("DaemonSet", lambda found: found["spec"]["selector"]["matchLabels"].update(a="b")), "spec.selector changes"),
        (of("DaemonSet", lambda found: kit.container(found)["volumeMounts"][-1].update(mountPath="/data")), "a directory moves"),
        (of("Service", lambda found: found["spec"]["ports"].pop()), "a port is gone"),
        (of("Service", lambda found: found["spec"].update(clusterIP="10.0.0.1")), "spec.clusterIP changes"),
        (of("ServiceAccount", lambda found: found["metadata"].update(name="other")), "is gone"),
        (lambda objects: objects.pop(), "is gone"),
    ],
)
def test_each_loss_is_seen(change: Callable[[list[kit.Object]], None], message: str) -> None:
    before = kit.objects(kit.CHART / "ci/defaults.yaml")
    after = copy.deepcopy(before)
    change(after)
    (loss,) = losses("0.0.0", before, after)
    assert message in loss
