# SPDX-License-Identifier: Apache-2.0

"""The Helm chart, rendered with each file of deploy/helm/tidegate/ci."""

from pathlib import Path

import kit
import kubernetes_validate
import pytest
import yaml

matrix = pytest.mark.parametrize("values", kit.MATRIX, ids=lambda path: path.stem)

# The oldest version that Chart.yaml allows, and the newest with a schema.
VERSIONS = ["1.27", "1.37"]


# Kinds that the tests of this file look for. A test of a kind that no values file makes would check nothing.
KINDS = {"ClusterRole", "ConfigMap", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceMonitor", "StatefulSet"}


def test_each_kind_of_object_is_in_the_matrix() -> None:
    assert {found["kind"] for values in kit.MATRIX for found in kit.objects(values)} >= KINDS


@matrix
def test_each_workload_has_its_configuration_or_that_of_the_operator(values: Path) -> None:
    given = yaml.safe_load(values.read_text()) or {}
    own = {kind for kind, key in (("DaemonSet", "agent"), ("StatefulSet", "gateway")) if given.get(key, {}).get("existingConfigMap")}
    made = {workload["kind"] for workload, _ in kit.configurations(values)}
    assert made | own == {workload["kind"] for workload in kit.workloads(values)} and not made & own


@matrix
def test_helm_lint_has_no_complaint(values: Path) -> None:
    result = kit.run(kit.program("helm"), "lint", "--strict", "--quiet", kit.CHART, "--values", values)
    assert result.returncode == 0, result.stdout + result.stderr


@matrix
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_fit_the_schema_of_kubernetes(values: Path, version: str) -> None:
    for found in kit.objects(values):
        if found["kind"] not in kit.CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


@matrix
def test_names_are_unique_and_objects_are_in_the_namespace(values: Path) -> None:
    names = [(found["kind"], found["metadata"]["name"]) for found in kit.objects(values)]
    assert len(names) == len(set(names)) and names
    spread = ("ClusterRole", "ClusterRoleBinding")
    assert all(found["metadata"]["name"].startswith(kit.NAMESPACE) for found in kit.objects(values) if found["kind"] in spread)
    # A ScaledObject is in the namespace of what it scales.
    others = [found for found in kit.objects(values) if found["kind"] not in (*spread, "ScaledObject")]
    assert {found["metadata"].get("namespace") for found in others} == {kit.NAMESPACE}


@matrix
def test_tidegate_accepts_each_configuration(values: Path, tmp_path: Path) -> None:
    for workload, files in kit.configurations(values):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        arguments = kit.container(workload)["args"]
        named = [Path(argument.split("=")[1]) for argument in arguments if argument.startswith("--config=")]
        assert [file.name for file in named] == sorted(files)
        variables = {variable["name"]: "instance:key" for variable in kit.container(workload).get("env", [])}
        result = kit.validate([tmp_path / file.name for file in named], variables)
        assert result.returncode == 0 and not result.stderr, result.stderr


@matrix
def test_containers_declare_the_ports_on_which_they_listen(values: Path) -> None:
    for workload, files in kit.configurations(values):
        assert kit.listens(yaml.safe_load(files["config.yaml"])) == set(kit.ports(workload).values())


@matrix
def test_services_select_pods_that_have_their_ports(values: Path) -> None:
    for service in kit.of_kind(values, "Service"):
        (workload,) = kit.selected(service["spec"]["selector"], kit.workloads(values))
        for port in service["spec"]["ports"]:
            assert kit.ports(workload)[port["targetPort"]] == port["port"]


# A replica that waits for the store of its cluster is alive and not ready.
PROBES = {"startupProbe": "/-/healthy", "readinessProbe": "/", "livenessProbe": "/-/healthy"}


@matrix
def test_probes_ask_existing_ports(values: Path) -> None:
    for workload in kit.workloads(values):
        probes = {name: kit.container(workload)[name]["httpGet"] for name in PROBES}
        assert {probe["port"] for probe in probes.values()} <= kit.ports(workload).keys()
        assert {name: probe["path"] for name, probe in probes.items()} == PROBES


@matrix
def test_no_container_runs_as_root_or_may_become_it(values: Path) -> None:
    for workload in kit.workloads(values):
        of_pod, of_container = kit.pod(workload)["securityContext"], kit.container(workload)["securityContext"]
        assert of_pod["runAsNonRoot"] and of_pod["runAsUser"] > 0 and of_pod["runAsGroup"] > 0
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert of_container["readOnlyRootFilesystem"] and not of_container["allowPrivilegeEscalation"]
        assert of_container["capabilities"] == {"drop": ["ALL"]}


@matrix
def test_only_pods_that_discover_get_a_token_and_may_list(values: Path) -> None:
    given = (yaml.safe_load(values.read_text()) or {}).get("discovery", {})
    expects = bool(kit.of_kind(values, "Role"))
    tokens = {workload["kind"]: kit.pod(workload)["automountServiceAccountToken"] for workload in kit.workloads(values)}
    wanted = {"DaemonSet": given.get("agent", False), "StatefulSet": given.get("gateway", False) or expects}
    assert tokens == {kind: wanted[kind] for kind in tokens}
    roles, bindings = kit.of_kind(values, "ClusterRole"), kit.of_kind(values, "ClusterRoleBinding")
    assert len(roles) == len(bindings) == int(any(given.values()))
    for role, binding in zip(roles, bindings, strict=True):
        assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        names = [kit.pod(workload)["serviceAccountName"] for workload in kit.workloads(values) if tokens[workload["kind"]]]
        assert sorted(subject["name"] for subject in binding["subjects"]) == sorted(names)
        assert {subject["namespace"] for subject in binding["subjects"]} == {kit.NAMESPACE}


@matrix
def test_agents_and_gateways_have_accounts_of_their_own(values: Path) -> None:
    names = [kit.pod(workload)["serviceAccountName"] for workload in kit.workloads(values)]
    made = [account["metadata"]["name"] for account in kit.of_kind(values, "ServiceAccount")]
    makes = (yaml.safe_load(values.read_text()) or {}).get("serviceAccount", {}).get("create", True)
    assert sorted(made) == (sorted(names) if makes else [])


@matrix
def test_mounts_name_volumes_and_directories_of_the_configuration(values: Path) -> None:
    for workload in kit.workloads(values):
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        volumes = {volume["name"] for volume in kit.pod(workload)["volumes"]} | set(claims)
        assert {mount["name"] for mount in kit.container(workload)["volumeMounts"]} == volumes
    for workload, files in kit.configurations(values):
        mounts = [mount["mountPath"] for mount in kit.container(workload)["volumeMounts"]]
        configuration = yaml.safe_load(files["config.yaml"])
        storage = configuration["extensions"].get("file_storage", {}).get("directory")
        read = [path for receiver in configuration["receivers"].values() for path in receiver.get("directories", [])]
        for path in read + ([storage] if storage else []):
            assert any(path == mount or path.startswith(mount + "/") for mount in mounts), path


@matrix
def test_agents_send_to_every_replica_of_the_gateway(values: Path) -> None:
    (gateway,) = kit.of_kind(values, "StatefulSet")
    name, service = gateway["metadata"]["name"], gateway["spec"]["serviceName"]
    pods = {f"{name}-{ordinal}.{service}.{kit.NAMESPACE}.svc" for ordinal in range(gateway["spec"]["replicas"])}
    assert service in {found["metadata"]["name"] for found in kit.of_kind(values, "Service") if found["spec"].get("clusterIP")}
    for workload, files in kit.configurations(values):
        if workload["kind"] == "DaemonSet":
            exporters = yaml.safe_load(files["config.yaml"])["exporters"]
            sent = {options["endpoint"] for key, options in exporters.items() if key.startswith("otlp/")}
            # In a cluster, the replicas read the totals in its store.
            assert sent == (set() if "partials" in exporters else {f"{pod}:4317" for pod in pods})
            if "loadbalancing" in exporters:
                assert set(exporters["loadbalancing"]["resolver"]["static"]["hostnames"]) == {f"{pod}:4319" for pod in pods}


@matrix
def test_policies_and_budgets_select_pods_that_have_their_ports(values: Path) -> None:
    for policy in kit.of_kind(values, "NetworkPolicy"):
        (workload,) = kit.selected(policy["spec"]["podSelector"], kit.workloads(values))
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        # The kubelet probes from the node, which policies do not limit.
        assert allowed == set(kit.ports(workload)) - {"health"}
    for budget in kit.of_kind(values, "PodDisruptionBudget"):
        assert len(kit.selected(budget["spec"]["selector"], kit.workloads(values))) == 1


@matrix
def test_monitors_select_services_that_have_their_ports(values: Path) -> None:
    services = kit.of_kind(values, "Service")
    for monitor in kit.of_kind(values, "ServiceMonitor"):
        selector = monitor["spec"]["selector"]
        found = [service for service in services if selector["matchLabels"].items() <= service["metadata"]["labels"].items()]
        for expression in selector.get("matchExpressions", []):
            found = [service for service in found if service["metadata"]["labels"][expression["key"]] in expression["values"]]
        assert found
        for endpoint in monitor["spec"]["endpoints"]:
            for service in found:
                assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_prometheus_scrapes_the_data_of_all_replicas_once(tmp_path: Path) -> None:
    values = kit.CHART / "ci/everything.yaml"
    (monitor,) = (found for found in kit.of_kind(values, "ServiceMonitor") if "gateway" in found["metadata"]["name"])
    (endpoint,) = monitor["spec"]["endpoints"]
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    rules = [{names.get(key, key): value for key, value in rule.items()} for rule in endpoint["relabelings"]]
    # The operator gives each target these labels before it relabels.
    targets = [
        {
            "targets": [f"10.0.0.{ordinal}:9464"],
            "labels": {"pod": f"gateway-{ordinal}", "container": "tidegate", "service": "gateway", "endpoint": "metrics"},
        }
        for ordinal in range(2)
    ]
    (tmp_path / "targets.json").write_text(yaml.safe_dump(targets, default_flow_style=True, width=10**6))
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump(targets))
    job = {"job_name": "j", "file_sd_configs": [{"files": [str(tmp_path / "targets.yaml")]}], "relabel_configs": rules}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    result = kit.run(kit.program("promtool"), "check", "service-discovery", "--timeout=3s", tmp_path / "prometheus.yaml", "j")
    found = yaml.safe_load(result.stdout)
    assert len(found) == 2, result.stdout + result.stderr
    assert found[0]["labels"] == found[1]["labels"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("agnet: {}", "agnet"),
        ("agent: {interval: 1}", "interval"),
        ("agent: {interval: fast}", "interval"),
        ("agent: {nixl: {hostPath: run/nixl}}", "hostPath"),
        ("agent: {nixl: {enabled: false}, cells: {enabled: false}, otlp: {enabled: false}}", "enable one of them"),
        ("agent: {existingConfigMap: a, extraConfig: {a: b}}", "agent"),
        ("agent: {reload: always}", "reload"),
        ("gateway: {reload: 1s}", "reload"),
        ("gateway: {replicas: 0}", "replicas"),
        ("gateway: {replicas: two}", "replicas"),
        ("gateway: {storage: {size: much}}", "size"),
        ("vendors: [{name: a, endpoint: a.example.com}]", "endpoint"),
        ("vendors: [{name: A, endpoint: 'https://a.example.com'}]", "name"),
        ("vendors: [{name: a, vendor: datadgo, endpoint: 'https://a.example.com'}]", "datadog"),
        ("vendors: [{name: a, vendor: datadog, endpoint: 'https://a.example.com'}]", "secretRef"),
        ("vendors: [{name: a, endpoint: 'https://a.example.com', secretRef: {name: b, key: c}}]", "header"),
        ("vendors: [{name: a, endpoint: 'https://a', durableQueue: true}]\ngateway: {storage: {enabled: false}}", "enable the storage"),
        ("vendors: [{name: a, endpoint: 'https://a'}, {name: a, endpoint: 'https://b'}]", "a has two entries"),
        ("dashboards: {labels: {grafana_dashboard: 1}}", "grafana_dashboard"),
        ("docsUrl: docs.example.com", "docsUrl"),
        ("docsUrl: https://docs.example.com/", "docsUrl"),
        ("docsUrl: 'https://docs.example.com/a \"b'", "docsUrl"),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_the_value(values: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(values)
    result = kit.template("--values", file)
    assert result.returncode != 0 and message in result.stderr, result.stderr


def test_large_user_ids_have_no_exponent(tmp_path: Path) -> None:
    # Those of projects in OpenShift.
    file = tmp_path / "values.yaml"
    file.write_text("agent: {runAsUser: 1000650000}\ngateway: {runAsUser: 1000650000}\n")
    installed = kit.run(kit.program("helm"), "install", "prod", kit.CHART, "--dry-run=client", "--values", file)
    assert installed.returncode == 0, installed.stderr
    assert installed.stdout.count("runAsUser: 1000650000\n") == 2 and "fsGroup: 1000650000\n" in installed.stdout
    assert "runs as the user id 1000650000." in installed.stdout and "e+09" not in installed.stdout


def test_a_change_of_the_configuration_replaces_only_its_pods() -> None:
    def sums(*arguments: str) -> dict[str, str]:
        documents = yaml.safe_load_all(kit.template(*arguments).stdout)
        found = [document for document in documents if document["kind"] in ("DaemonSet", "StatefulSet")]
        return {each["kind"]: each["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for each in found}

    before, after = sums(), sums("--set", "agent.extraConfig.service.drain_timeout=2s")
    assert before["DaemonSet"] != after["DaemonSet"] and before["StatefulSet"] == after["StatefulSet"]


def test_with_reload_a_change_of_the_configuration_replaces_no_pod() -> None:
    def found(*settings: str) -> dict[tuple[str, str], kit.Object]:
        result = kit.template("--set", ",".join(["agent.reload=true", *settings]))
        assert result.returncode == 0, result.stderr
        return {(each["kind"], each["metadata"]["name"]): each for each in kit.documents(result.stdout)}

    before, after = (found(f"agent.extraConfig.service.drain_timeout={limit}") for limit in ("2s", "3s"))
    assert before.keys() == after.keys()
    assert [key for key in before if before[key] != after[key]] == [("ConfigMap", "prod-tidegate-agent")]


@matrix
def test_pods_that_reload_watch_the_files_of_a_mounted_directory(values: Path) -> None:
    given = yaml.safe_load(values.read_text()) or {}
    for workload in kit.workloads(values):
        chosen = given.get({"DaemonSet": "agent", "StatefulSet": "gateway"}[workload["kind"]], {})
        reloads, container = chosen.get("reload", False), kit.container(workload)
        assert ("--watch-config" in container["args"]) == reloads
        is_replaced = "checksum/config" in workload["spec"]["template"]["metadata"]["annotations"]
        assert is_replaced == (not reloads and not chosen.get("existingConfigMap"))
        # The kubelet does not update a mount with a subPath.
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "config")
        assert mount.keys() == {"name", "mountPath", "readOnly"}
        files = [argument.split("=")[1] for argument in container["args"] if argument.startswith("--config=")]
        assert files and all(str(Path(file).parent) == mount["mountPath"] for file in files)


def test_the_matrix_has_pods_that_reload() -> None:
    workloads = [workload for values in kit.MATRIX for workload in kit.workloads(values)]
    assert {workload["kind"] for workload in workloads if "--watch-config" in kit.container(workload)["args"]} == {"DaemonSet", "StatefulSet"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("agent.runAsUser=0", "run as root"),
        ("agent.enabled=true", "scrape the Service"),
        ("cluster.enabled=true,gateway.replicas=2", "tidegate cluster status"),
        ("cluster.enabled=true,gateway.replicas=2", "tokenSecretRef is not set"),
    ],
)
def test_the_notes_say_what_to_do_next(settings: str, text: str) -> None:
    result = kit.run(kit.program("helm"), "install", "prod", kit.CHART, "--dry-run=client", "--set", settings)
    assert result.returncode == 0 and text in result.stdout, result.stdout + result.stderr
