# SPDX-License-Identifier: Apache-2.0

"""What the tests of deploy/ share: the programs, the rendered chart, and the pods in it."""

import copy
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Iterator

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/tidegate"
MATRIX = sorted((CHART / "ci").glob("*.yaml"))
# Values files of the official chart of the Collector, which the chart takes too.
COLLECTORS = sorted((Path(__file__).parent / "collector").glob("*.yaml"))
NAMESPACE = "monitoring"
# Kinds that others define: their schemas are not part of Kubernetes.
CUSTOM = ("PodMonitor", "PrometheusRule", "ScaledObject", "ServiceMonitor")

Object = dict[str, Any]


def program(name: str) -> str:
    """The path of a program: `cargo xtask deploy` names it in a variable."""
    variable = f"TIDEGATE_{name.upper()}"
    assert variable in os.environ, f"{variable} is not set: run `cargo xtask deploy`"
    return os.environ[variable]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def template(*arguments: str | Path, release: str = "prod", namespace: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    return run(program("helm"), "template", release, CHART, "--namespace", namespace, *arguments)


@functools.cache
def rendered(values: Path) -> str:
    result = template("--values", values)
    assert result.returncode == 0, result.stderr
    return result.stdout


def documents(text: str) -> list[Object]:
    # The parser in C: with dashboards, a chart has 300 kB.
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


@functools.cache
def parsed(values: Path) -> list[Object]:
    return documents(rendered(values))


def objects(values: Path) -> list[Object]:
    """The rendered objects. Each caller has copies of its own."""
    return copy.deepcopy(parsed(values))


def collector_arguments(values: Path) -> list[str | Path]:
    """How users pass a values file of the Collector's chart. A comma in a path would end the value."""
    return ["--set-file", f"collector.valuesFile={values}"]


@functools.cache
def collector_text(values: Path) -> str:
    result = template(*collector_arguments(values))
    assert result.returncode == 0, result.stderr
    return result.stdout


def collector_objects(values: Path) -> list[Object]:
    """The objects of a values file of the Collector's chart."""
    return documents(collector_text(values))


def of_kind(values: Path, *kinds: str) -> list[Object]:
    return [found for found in objects(values) if found["kind"] in kinds]


def workloads(values: Path) -> list[Object]:
    found = of_kind(values, "DaemonSet", "StatefulSet")
    assert found, f"{values}: no workload"
    return found


def pod(workload: Object) -> Object:
    return workload["spec"]["template"]["spec"]


def container(workload: Object) -> Object:
    (only,) = pod(workload)["containers"]
    return only


def ports(workload: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(workload)["ports"]}


def selected(selector: Object, candidates: list[Object]) -> list[Object]:
    """The workloads whose pods have all labels of a selector."""
    labels = selector.get("matchLabels", selector)
    return [found for found in candidates if labels.items() <= found["spec"]["template"]["metadata"]["labels"].items()]


def configurations(values: Path) -> Iterator[tuple[Object, dict[str, str]]]:
    """Each workload with the files of its ConfigMap. A ConfigMap of the operator is not there."""
    maps = {found["metadata"]["name"]: found["data"] for found in of_kind(values, "ConfigMap")}
    for workload in workloads(values):
        (name,) = (volume["configMap"]["name"] for volume in pod(workload)["volumes"] if volume["name"] == "config")
        if name in maps:
            yield workload, maps[name]


def validate(files: list[Path], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """`tidegate validate` with no other variables than those of the container."""
    arguments = [f"--config={file}" for file in files]
    return run(program("binary"), "validate", *arguments, env=environment)


def listens(configuration: Any) -> set[int]:
    """The ports on which a configuration listens for other pods."""
    text = yaml.safe_dump(configuration, default_flow_style=True, width=10**6)
    pull = re.findall(r"host: 0\.0\.0\.0, port: (\d+)", text)
    return {int(port) for port in re.findall(r"0\.0\.0\.0:(\d+)", text) + pull}
