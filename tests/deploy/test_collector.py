# SPDX-License-Identifier: Apache-2.0

"""The chart with a values file of the official chart of the OpenTelemetry Collector, for each file of tests/deploy/collector."""

import random
import subprocess
import urllib.request
from pathlib import Path

import kit
import kubernetes_validate
import live
import pytest
import yaml

each_file = pytest.mark.parametrize("values", kit.COLLECTORS, ids=lambda path: path.stem)
VERSIONS = ["1.27", "1.37"]

# What the official chart names its objects and selects its pods by, in a release `prod`. Selectors can't change in place.
OFFICIAL = {
    "smallest": ("Deployment", "prod-opentelemetry-collector", "opentelemetry-collector", "standalone-collector"),
    "gateway": ("Deployment", "prod-opentelemetry-collector", "opentelemetry-collector", "standalone-collector"),
    "agent": ("DaemonSet", "prod-collector-agent", "collector", "agent-collector"),
    "queue": ("StatefulSet", "telemetry", "opentelemetry-collector", "statefulset-collector"),
}
SERVICES = {"smallest": "prod-opentelemetry-collector", "gateway": "prod-opentelemetry-collector", "agent": "prod-collector", "queue": "telemetry"}


def given(values: Path) -> kit.Object:
    return yaml.safe_load(values.read_text())


def of_kind(values: Path, *kinds: str) -> list[kit.Object]:
    return [found for found in kit.collector_objects(values) if found["kind"] in kinds]


def workload(values: Path) -> kit.Object:
    (found,) = of_kind(values, "Deployment", "DaemonSet", "StatefulSet")
    return found


def relay(values: Path) -> str:
    """The configuration that the pod mounts."""
    volumes = {volume["name"]: volume for volume in kit.pod(workload(values))["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in kit.container(workload(values))["volumeMounts"]}
    source = volumes[mounts["/conf"]]["configMap"]
    (found,) = (found for found in of_kind(values, "ConfigMap") if found["metadata"]["name"] == source["name"])
    (item,) = source["items"]
    assert item["path"] == "relay.yaml"
    return found["data"][item["key"]]


def refusal(text: str, tmp_path: Path, *arguments: str) -> str:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    result = kit.template(*kit.collector_arguments(file), *arguments)
    assert result.returncode != 0
    return result.stderr


@each_file
def test_helm_lint_has_no_complaint(values: Path) -> None:
    result = kit.run(kit.program("helm"), "lint", "--strict", "--quiet", kit.CHART, *kit.collector_arguments(values))
    assert result.returncode == 0, result.stdout + result.stderr


@each_file
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_fit_the_schema_of_kubernetes(values: Path, version: str) -> None:
    for found in kit.collector_objects(values):
        if found["kind"] not in kit.CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


@each_file
def test_tidegate_accepts_the_configuration_and_the_arguments(values: Path, tmp_path: Path) -> None:
    file = tmp_path / "relay.yaml"
    file.write_text(relay(values))
    first, *others = kit.container(workload(values))["args"]
    assert first == "--config=/conf/relay.yaml"
    variables = {variable["name"]: "127.0.0.1" for variable in kit.container(workload(values))["env"]}
    result = kit.run(kit.program("binary"), "validate", f"--config={file}", *others, env=variables)
    assert result.returncode == 0 and not result.stderr, result.stderr


def test_the_pod_of_the_defaults_is_ready_and_takes_otlp(tmp_path: Path) -> None:
    (smallest,) = (values for values in kit.COLLECTORS if values.stem == "smallest")
    file = tmp_path / "relay.yaml"
    file.write_text(relay(smallest))
    # The ports are fixed, so the address is one that no other test has.
    address = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(2, 254)}"
    probe = kit.container(workload(smallest))["readinessProbe"]["httpGet"]

    def get(port: int, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=60) as answer:
                return answer.read().decode() or "ready"
        except OSError:
            return ""

    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([kit.program("binary"), f"--config={file}"], env={"MY_POD_IP": address}, stdout=log, stderr=log)
    try:
        live.wait_for("the probe succeeds", lambda: get(probe["port"], probe["path"]))
        live.post(f"{address}:4318", "metrics", 1)
        live.wait_for("the point is counted", lambda: 'otelcol_receiver_accepted_metric_points{receiver="otlp",transport="http"} 1' in get(8888, "/metrics"))
    finally:
        process.kill()
        process.wait()


def test_the_defaults_are_those_of_the_official_chart() -> None:
    # Another file of the repository has what the official chart renders, without Jaeger and Zipkin.
    text = (kit.ROOT / "tests/data/config/collector/chart_gateway_otlp.yaml").read_text()
    official = yaml.safe_load(text.replace("${env:MY_POD_IP:-127.0.0.1}", "${env:MY_POD_IP}"))
    (smallest,) = (values for values in kit.COLLECTORS if values.stem == "smallest")
    ours = yaml.safe_load(relay(smallest))
    assert ours["service"].pop("telemetry")
    assert ours == official


@each_file
def test_names_and_selectors_are_those_of_the_official_chart(values: Path) -> None:
    kind, name, label, component = OFFICIAL[values.stem]
    found = workload(values)
    assert (found["kind"], found["metadata"]["name"]) == (kind, name)
    labels = {"app.kubernetes.io/name": label, "app.kubernetes.io/instance": "prod", "component": component}
    assert found["spec"]["selector"]["matchLabels"] == labels
    (service,) = of_kind(values, "Service")
    assert service["metadata"]["name"] == SERVICES[values.stem] and service["spec"]["selector"] == labels


@each_file
def test_there_is_no_agent_and_no_gateway(values: Path) -> None:
    names = [found["metadata"]["name"] for found in kit.collector_objects(values)]
    assert not [name for name in names if "tidegate" in name or name.endswith(("-gateway", "-gateway-pods"))]
    assert len(of_kind(values, "Deployment", "DaemonSet", "StatefulSet")) == 1


@each_file
def test_containers_declare_ports_on_which_they_listen(values: Path) -> None:
    listens = kit.listens(yaml.safe_load(relay(values).replace("${env:MY_POD_IP}", "0.0.0.0")))
    container = kit.container(workload(values))
    assert set(kit.ports(workload(values)).values()) <= listens
    probes = {container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")}
    assert probes == {13133} and probes <= listens


@each_file
def test_services_select_pods_that_have_their_ports(values: Path) -> None:
    (service,) = of_kind(values, "Service")
    assert kit.selected(service["spec"]["selector"], [workload(values)])
    targets = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
    assert targets == kit.ports(workload(values))
    for monitor in of_kind(values, "ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= targets.keys()
    for monitor in of_kind(values, "PodMonitor"):
        assert kit.selected(monitor["spec"]["selector"], [workload(values)])
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= kit.ports(workload(values)).keys()


@each_file
def test_the_pod_has_what_the_file_says(values: Path) -> None:
    pod, container, file = kit.pod(workload(values)), kit.container(workload(values)), given(values)
    same = ("dnsPolicy", "hostNetwork", "nodeSelector", "priorityClassName", "tolerations", "topologySpreadConstraints")
    assert {key: pod[key] for key in same if key in file} == {key: file[key] for key in same if key in file}
    parts = {"extraEnvs": container["env"], "extraVolumeMounts": container["volumeMounts"], "extraVolumes": pod["volumes"]}
    for key, there in parts.items():
        assert all(entry in there for entry in file.get(key, [])), key
    assert container.get("envFrom", []) == file.get("extraEnvsFrom", [])
    assert container.get("resources", {}) == file.get("resources", {})
    assert file.get("livenessProbe", {}).items() <= container["livenessProbe"].items()
    template = workload(values)["spec"]["template"]["metadata"]
    assert file.get("podLabels", {}).items() <= template["labels"].items()
    assert file.get("podAnnotations", {}).items() <= template["annotations"].items()
    claims = [claim["metadata"]["name"] for claim in workload(values)["spec"].get("volumeClaimTemplates", [])]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]} | set(claims)


@each_file
def test_replicas_are_those_of_the_file_unless_they_are_scaled(values: Path) -> None:
    file, spec = given(values), workload(values)["spec"]
    scalers, budgets = of_kind(values, "HorizontalPodAutoscaler"), of_kind(values, "PodDisruptionBudget")
    is_scaled = file.get("autoscaling", {}).get("enabled", False)
    assert len(scalers) == int(is_scaled) and len(budgets) == int("podDisruptionBudget" in file)
    assert spec.get("replicas") == (None if is_scaled or file["mode"] == "daemonset" else file.get("replicaCount", 1))
    for scaler in scalers:
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == (workload(values)["kind"], workload(values)["metadata"]["name"])
        assert scaler["spec"]["maxReplicas"] == file["autoscaling"]["maxReplicas"]


@each_file
def test_the_image_is_that_of_tidegate_and_not_root_unless_asked(values: Path) -> None:
    pod, container = kit.pod(workload(values)), kit.container(workload(values))
    assert container["image"].startswith("tidegate:") and "command" not in container
    asked = given(values).get("securityContext", {}).get("runAsUser")
    assert pod["securityContext"]["runAsNonRoot"] == (asked != 0)
    assert container["securityContext"]["readOnlyRootFilesystem"] and container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    accounts = [account["metadata"]["name"] for account in of_kind(values, "ServiceAccount")]
    makes = given(values).get("serviceAccount", {}).get("create", True)
    assert accounts == ([pod["serviceAccountName"]] if makes else [])


def test_ports_of_nodes_open_only_for_agents() -> None:
    opened = {
        values.stem: {port["name"]: port["hostPort"] for port in kit.container(workload(values))["ports"] if "hostPort" in port} for values in kit.COLLECTORS
    }
    assert opened == {"agent": {"otlp": 4317}, "gateway": {}, "queue": {}, "smallest": {}}
    local = {values.stem for values in kit.COLLECTORS if of_kind(values, "Service")[0]["spec"].get("internalTrafficPolicy") == "Local"}
    assert local == {"agent"}


def test_only_pods_with_rights_get_a_token() -> None:
    tokens = {values.stem: kit.pod(workload(values))["automountServiceAccountToken"] for values in kit.COLLECTORS}
    # `queue` names an account of its own, with rights that the chart does not know.
    assert tokens == {"agent": True, "gateway": False, "queue": True, "smallest": False}
    (agent,) = (values for values in kit.COLLECTORS if values.stem == "agent")
    (role,), (binding,) = of_kind(agent, "ClusterRole"), of_kind(agent, "ClusterRoleBinding")
    assert role["rules"] == given(agent)["clusterRole"]["rules"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == kit.pod(workload(agent))["serviceAccountName"]


def test_values_that_are_false_or_empty_replace_defaults(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("mode: deployment\nconfig: {processors: {memory_limiter: {spike_limit_percentage: 0}}}\nreplicaCount: 0\n")
    assert '"spike_limit_percentage": 0' in relay(file)
    assert workload(file)["spec"]["replicas"] == 0


def test_a_grace_period_of_zero_seconds_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("mode: deployment\nterminationGracePeriodSeconds: 0\n")
    assert kit.pod(workload(file))["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: {}", "mode is missing"),
        ("mode: sidecar", "mode is missing"),
        ("[mode]", "not a values file"),
        ("mode: deployment\npresets: {logsCollection: {enabled: true}}", "keep a Collector for logs"),
        ("mode: daemonset\npresets: {hostMetrics: {enabled: true}}", "scrape the node exporter"),
        ("mode: daemonset\npresets: {kubeletMetrics: {enabled: true}}", "scrape the kubelet"),
        ("mode: daemonset\npresets: {kubernetesAttributes: {enabled: true}}", "k8sattributes into config"),
        ("mode: daemonset\npresets: {profiling: {enabled: true}}", "write its components into config"),
        ("mode: deployment\nconfig: {receivers: {jaeger: {protocols: {grpc: {}}}}}", "set config.receivers.jaeger: null"),
        ("mode: deployment\nconfig: {receivers: {zipkin/2: {endpoint: 'localhost:1'}}}", "config.receivers.zipkin/2"),
        ("mode: deployment\nconfig: {service: {pipelines: {traces: {receivers: [otlp, jaeger]}}}}", "remove it from config.service.pipelines.traces"),
        ("mode: deployment\ningress: {enabled: true}", "write the Ingress into extraManifests"),
        ("mode: deployment\nprometheusRule: {enabled: true}", "alerts.enabled"),
        ("mode: deployment\nnamespaceOverride: other", "install the release into that namespace"),
        ("mode: deployment\nlifecycleHooks: {preStop: {exec: {command: [a]}}}", "no shell"),
        ("mode: deployment\nextraConfigMapMounts: [{name: a}]", "use extraVolumes"),
        ("mode: deployment\ninternalTelemetryViaOTLP: {metrics: {enabled: true}}", "enable ports.metrics"),
        ("mode: deployment\ntargetAllocator: {enabled: true}", "prometheus_cr"),
        ("mode: deployment\nreplicas: 2", "replicas is not known"),
        ("mode: deployment\nports: {syslog: {enabled: true}}", "ports.syslog has no containerPort"),
        ("mode: deployment\npodAnnotations: {a: '{{ .Release.Name }}'}", "evaluates no templates"),
    ],
)
def test_what_can_not_be_carried_is_refused_with_a_cure(text: str, message: str, tmp_path: Path) -> None:
    assert message in (why := refusal(text, tmp_path)), why


def test_a_copy_of_unused_defaults_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    unused = [
        "presets: {hostMetrics: {enabled: false}}",
        "ingress: {enabled: false, hosts: []}",
        "extraConfigMapMounts: []",
        "lifecycleHooks: {}",
        'namespaceOverride: ""',
        "internalTelemetryViaOTLP: {metrics: {enabled: false}, traces: {enabled: false}}",
        "targetAllocator: {enabled: false}",
        "networkPolicy: {enabled: false, allowIngressFrom: []}",
        "alternateConfig: {}",
        "startupProbe: {}",
        "ports: {jaeger-compact: null, jaeger-grpc: {enabled: false}, zipkin: null}",
        "config: {receivers: {jaeger: null, zipkin: null}}",
        "resources: null",
    ]
    file.write_text("\n".join(["mode: deployment", *unused]))
    (smallest,) = (values for values in kit.COLLECTORS if values.stem == "smallest")
    assert kit.collector_objects(file) == kit.collector_objects(smallest)


@pytest.mark.parametrize(
    "beside",
    [
        "agent.runAsUser=1000",
        "agent.nixl.enabled=false",
        "agent.extraConfig.service.drain_timeout=1s",
        "agent.nodeSelector.gpu=yes",
        "agent.existingConfigMap=a",
        "gateway.replicas=2",
        "gateway.resources.limits.cpu=1",
        "serviceAccount.create=false",
        "cluster.enabled=true",
        "networkPolicy.enabled=true",
        "vendorInterval=1m",
        "vendors[0].name=a,vendors[0].endpoint=http://a",
    ],
)
def test_values_of_agents_and_gateways_are_refused(beside: str, tmp_path: Path) -> None:
    why = refusal("mode: deployment", tmp_path, "--set", beside)
    name = ".".join(beside.split("=")[0].split("[")[0].split(".")[:2])
    assert f"{name}: no effect" in why and "release of their own" in why, why


def test_values_without_effect_are_compared_with_the_defaults_of_the_chart() -> None:
    text = (kit.CHART / "templates/_collector.tpl").read_text().partition('"tidegate.collectorUnused" -}}')[2]
    unused, defaults = yaml.safe_load(text.partition("{{- end }}")[0]), given(kit.CHART / "values.yaml")
    used = {"alerts", "collector", "dashboards", "docsUrl", "fullnameOverride", "image", "imagePullSecrets", "nameOverride"}
    assert used.isdisjoint(unused) and used | set(unused) == set(defaults)
    for name in ("agent", "gateway", "serviceAccount"):
        assert unused[name] == {key: value for key, value in defaults[name].items() if (name, key) != ("agent", "enabled")}, name
    for name, value in unused.items():
        assert value == defaults[name] or value.items() <= defaults[name].items(), name


def test_the_notes_name_the_workload() -> None:
    for values in kit.COLLECTORS:
        result = kit.run(kit.program("helm"), "install", "prod", kit.CHART, "--dry-run=client", *kit.collector_arguments(values))
        kind, name, _, _ = OFFICIAL[values.stem]
        assert result.returncode == 0 and f"rollout status {kind.lower()}/{name}" in result.stdout, result.stdout + result.stderr
