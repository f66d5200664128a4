# SPDX-License-Identifier: Apache-2.0

"""The chart with a cluster: what agents and gateways must agree on. `test_chart.py` checks these values files too."""

from pathlib import Path

import kit
import pytest
import yaml

FILES = [file for file in kit.MATRIX if file.stem.startswith("cluster-")]
DIRECT = kit.CHART / "ci/cluster-direct.yaml"
each_engine = pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)


def both(values: Path) -> tuple[kit.Object, kit.Object]:
    """The configurations of the agents and of the gateways."""
    found = {workload["kind"]: yaml.safe_load(files["config.yaml"]) for workload, files in kit.configurations(values)}
    return found["DaemonSet"], found["StatefulSet"]


def gateway(values: Path) -> kit.Object:
    (found,) = kit.of_kind(values, "StatefulSet")
    return found


def test_the_matrix_has_each_engine() -> None:
    schema = yaml.safe_load((kit.CHART / "values.schema.json").read_text())
    engines = schema["properties"]["cluster"]["properties"]["engine"]["enum"]
    tried = [next(iter(both(values)[1]["extensions"]["cluster"]["engine"])) for values in FILES]
    assert set(tried) == set(engines)


@each_engine
def test_agents_publish_where_gateways_read(values: Path) -> None:
    agent, shown = both(values)
    publish, read = agent["extensions"]["cluster"], shown["extensions"]["cluster"]
    for engine in read["engine"].values():
        engine.pop("serve", None)
    read.pop("leader", None)
    assert publish == read
    assert agent["service"]["pipelines"]["metrics"]["exporters"] == ["partials"]
    assert shown["service"]["pipelines"]["metrics"]["receivers"] == ["partials"]
    assert agent["exporters"]["partials"]["producer"] == "${env:NODE_NAME}"
    assert not any(name.startswith("otlp/gateway") for name in agent["exporters"])


def rights(values: Path) -> list[tuple[kit.Object, kit.Object]]:
    """The Roles with their bindings. Only the gateways have a token."""
    roles, bindings = kit.of_kind(values, "Role"), kit.of_kind(values, "RoleBinding")
    for role, binding in zip(roles, bindings, strict=True):
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
        (subject,) = binding["subjects"]
        pod = kit.pod(gateway(values))
        assert subject["name"] == pod["serviceAccountName"] and pod["automountServiceAccountToken"] is True
        (agent,) = kit.of_kind(values, "DaemonSet")
        assert kit.pod(agent)["automountServiceAccountToken"] is False
        assert kit.pod(agent)["serviceAccountName"] != subject["name"]
    return list(zip(roles, bindings, strict=True))


@each_engine
def test_gateways_that_a_lease_elects_may_write_this_lease_only(values: Path) -> None:
    agent, shown = both(values)
    assert "leader" not in agent["extensions"]["cluster"]
    if not yaml.safe_load(values.read_text())["cluster"].get("leaderLease", False):
        assert "leader" not in shown["extensions"]["cluster"]
        return
    namespace, lease = shown["extensions"]["cluster"]["leader"]["lease"].split("/")
    assert namespace == kit.NAMESPACE
    ((role, _),) = rights(values)
    of_lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["rules"] == [{**of_lease, "resourceNames": [lease], "verbs": ["get", "update"]}, {**of_lease, "verbs": ["create"]}]


@each_engine
def test_gateways_that_expect_agents_may_list_only_pods_of_their_namespace(values: Path) -> None:
    _, shown = both(values)
    if not yaml.safe_load(values.read_text())["cluster"].get("expectAgents", False):
        assert "expect_from" not in shown["receivers"]["partials"]
        return
    ((role, binding),) = rights(values)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    (agent,) = kit.of_kind(values, "DaemonSet")
    options = shown["receivers"]["partials"]["expect_from"]
    assert options["daemonset"] == f"{kit.NAMESPACE}/{agent['metadata']['name']}"
    selector = dict(pair.split("=") for pair in options["label_selector"].split(","))
    assert kit.selected(selector, kit.workloads(values)) == [agent]


@each_engine
def test_nothing_hides_tables_of_agents_from_partials(values: Path) -> None:
    agent, _ = both(values)
    processors = agent["service"]["pipelines"]["metrics"]["processors"]
    edits = processors.index("resource")
    assert all(edits < processors.index(name) for name in ("composite", "aggregate") if name in processors)


@each_engine
def test_agents_declare_the_composites_that_gateways_merge(values: Path) -> None:
    agent, shown = both(values)
    merged = shown["receivers"]["partials"].get("composites", [])
    declared = agent["processors"].get("composite", {"composites": []})["composites"]
    assert declared == [{key: value for key, value in one.items() if key != "thresholds"} for one in merged]
    computed = shown["processors"].get("composite", {"composites": []})["composites"]
    given = (yaml.safe_load(values.read_text())["gateway"]).get("composites", [])
    assert sorted(one["name"] for one in merged + computed) == sorted(one["name"] for one in given)


@each_engine
def test_vendors_of_totals_get_them_from_the_leader_and_others_from_agents(values: Path) -> None:
    agent, shown = both(values)
    pipelines = shown["service"]["pipelines"]
    vendors = {name: options for name, options in shown["exporters"].items() if name.startswith("otlphttp/")}
    led = {name for name, options in vendors.items() if options.get("only_leader") == "cluster"}
    assert set(pipelines.get("metrics/led", {"exporters": []})["exporters"]) == led
    assert set(pipelines.get("metrics/vendors", {"exporters": []})["exporters"]) == set(vendors) - led
    assert ("metrics/vendors" in agent["service"]["pipelines"]) == bool(set(vendors) - led)
    assert all(options.get("vendor") not in ("datadog", "newrelic") for name, options in vendors.items() if name in led)


@each_engine
def test_files_of_the_engine_are_in_a_volume_of_secrets(values: Path) -> None:
    for workload, files in kit.configurations(values):
        (engine,) = yaml.safe_load(files["config.yaml"])["extensions"]["cluster"]["engine"].values()
        named = [engine.get("credentials_file"), engine.get("sasl", {}).get("token_file"), engine.get("tls", {}).get("ca_file")]
        sources = [volume["projected"]["sources"] for volume in kit.pod(workload)["volumes"] if volume["name"] == "cluster"]
        items = [source["secret"]["items"] if "secret" in source else [source["serviceAccountToken"]] for found in sources for source in found]
        given = [f"/etc/tidegate-cluster/{item['path']}" for found in items for item in found]
        assert [path for path in named if path] == given


@pytest.mark.parametrize(
    ("token", "source"),
    [
        ("tokenSecretRef: {name: a, key: b}", {"secret": {"name": "a", "items": [{"key": "b", "path": "token"}]}}),
        ("tokenAudience: kafka", {"serviceAccountToken": {"audience": "kafka", "path": "token"}}),
    ],
)
def test_brokers_of_kafka_get_a_token_of_a_secret_or_of_the_pod(token: str, source: kit.Object, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    sasl = f"sasl: {{mechanism: OAUTHBEARER, {token}}}"
    values.write_text(f"cluster: {{enabled: true, engine: kafka, kafka: {{brokers: ['a:1'], {sasl}}}}}\n")
    for workload, files in kit.configurations(values):
        engine = yaml.safe_load(files["config.yaml"])["extensions"]["cluster"]["engine"]["kafka"]
        assert engine["sasl"] == {"mechanism": "OAUTHBEARER", "token_file": "/etc/tidegate-cluster/token"}
        (volume,) = (volume for volume in kit.pod(workload)["volumes"] if volume["name"] == "cluster")
        assert volume["projected"]["sources"] == [source]
        variables = [variable["name"] for variable in kit.container(workload).get("env", [])]
        assert not any(name.startswith("CLUSTER_") for name in variables)


def test_replicas_without_a_broker_find_each_other_before_they_are_ready() -> None:
    _, shown = both(DIRECT)
    direct = shown["extensions"]["cluster"]["engine"]["direct"]
    host, port = direct["dns"].split(":")
    service = next(found for found in kit.of_kind(DIRECT, "Service") if host.startswith(found["metadata"]["name"] + "."))
    assert service["spec"]["publishNotReadyAddresses"] and service["spec"]["clusterIP"] == "None"
    assert int(port) in [found["port"] for found in service["spec"]["ports"]]
    assert direct["serve"]["endpoint"].endswith(f":{port}")
    variables = {found["name"]: found for found in kit.container(gateway(DIRECT))["env"]}
    assert variables["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert gateway(DIRECT)["spec"]["podManagementPolicy"] == "Parallel"


@each_engine
def test_a_gateway_that_starts_reaches_the_history_of_the_others(values: Path) -> None:
    _, shown = both(values)
    admin = shown["extensions"]["admin"]
    (endpoint,) = admin["history"]["peers"]["endpoints"]
    host, port = endpoint.removeprefix("http://").split(":")
    service = next(found for found in kit.of_kind(values, "Service") if host.startswith(found["metadata"]["name"] + "."))
    assert service["spec"]["clusterIP"] == "None"
    assert int(port) in [found["port"] for found in service["spec"]["ports"]]
    assert admin["endpoint"].endswith(f":{port}")
    for policy in kit.of_kind(values, "NetworkPolicy"):
        if policy["metadata"]["name"].endswith("-gateway"):
            rules = [rule for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "api"}]]
            (peer,) = [peer for rule in rules for peer in rule["from"]]
            (reached,) = kit.selected(peer["podSelector"], kit.workloads(values))
            assert reached["kind"] == "StatefulSet"


def test_replicas_without_a_broker_do_not_end_together() -> None:
    workload = gateway(DIRECT)
    (budget,) = kit.of_kind(DIRECT, "PodDisruptionBudget")
    (spread,) = kit.pod(workload)["topologySpreadConstraints"]
    assert budget["spec"]["maxUnavailable"] == 1 and spread["whenUnsatisfiable"] == "DoNotSchedule"
    # The cache of CoreDNS, and the interval of lookups.
    assert workload["spec"]["minReadySeconds"] >= 30 + 5


def test_only_pods_of_the_cluster_reach_the_store_of_replicas() -> None:
    policies = kit.of_kind(DIRECT, "NetworkPolicy")
    rules = [rule for policy in policies for rule in policy["spec"]["ingress"] if {"port": "cluster"} in rule["ports"]]
    (rule,) = rules
    found = [kit.selected(peer["podSelector"], kit.workloads(DIRECT))[0]["kind"] for peer in rule["from"]]
    assert sorted(found) == ["DaemonSet", "StatefulSet"] and rule["ports"] == [{"port": "cluster"}]


@pytest.mark.parametrize("values", kit.MATRIX, ids=lambda path: path.stem)
def test_no_rule_of_a_policy_opens_all_ports(values: Path) -> None:
    rules = [rule for policy in kit.of_kind(values, "NetworkPolicy") for rule in policy["spec"]["ingress"]]
    assert all(rule["ports"] and rule["from"] for rule in rules)


@pytest.mark.parametrize(
    ("cluster", "more", "message"),
    [
        ("engine: redis", "", "engine"),
        ("name: a.b", "", "name"),
        ("partitions: 100", "", "partitions"),
        ("", "", "set gateway.replicas to 2 or 3"),
        ("", "gateway: {replicas: 4}", "set gateway.replicas to 2 or 3"),
        ("", "gateway: {replicas: 2, podDisruptionBudget: {enabled: false}}", "enable gateway.podDisruptionBudget"),
        ("", "gateway: {replicas: 2, podDisruptionBudget: {maxUnavailable: 2}}", "maxUnavailable: 1"),
        ("", "gateway: {replicas: 2}\nagent: {interval: 3s}", "interval"),
        ("direct: {tokenSecretRef: {name: a}}", "gateway: {replicas: 2}", "tokenSecretRef"),
        ("expectAgents: sometimes", "gateway: {replicas: 2}", "expectAgents"),
        ("expectAgents: true", "gateway: {replicas: 2}\nagent: {enabled: false}", "expectAgents needs agents"),
        ("engine: nats", "", "cluster.nats.servers"),
        ("engine: nats, nats: {servers: ['nats://u:p@nats:4222']}", "", "servers"),
        ("engine: nats, nats: {servers: ['nats://a:1'], credentialsSecretRef: {name: a}}", "", "credentialsSecretRef"),
        ("engine: nats, nats: {servers: ['nats://a:1'], credentialsSecretRef: {name: a, key: b}, userSecret: {name: a}}", "", "not both"),
        ("engine: nats, nats: {servers: ['nats://a:1'], tls: {caSecretRef: {name: a, key: b}}}", "", "set enabled: true"),
        ("engine: kafka", "", "cluster.kafka.brokers"),
        ("engine: kafka, kafka: {brokers: [kafka]}", "", "brokers"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {mechanism: GSSAPI}}", "", "mechanism"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {mechanism: PLAIN}}", "", "PLAIN needs userSecret.name"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {userSecret: {name: a}}}", "", "needs a mechanism"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {mechanism: OAUTHBEARER}}", "", "needs tokenSecretRef"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {mechanism: OAUTHBEARER, userSecret: {name: a}}}", "", "remove userSecret"),
        ("engine: kafka, kafka: {brokers: ['a:1'], sasl: {tokenAudience: a}}", "", "set mechanism: OAUTHBEARER"),
        (
            "engine: kafka, kafka: {brokers: ['a:1'], sasl: {mechanism: OAUTHBEARER, tokenAudience: a, tokenSecretRef: {name: a, key: b}}}",
            "",
            "not both",
        ),
        (
            "engine: kafka, kafka: {brokers: ['a:1']}",
            "gateway: {composites: [{name: a, metric: b, function: max, thresholds: [{name: c, above: 1, webhook: {url: 'http://d'}}]}]}",
            "would call the webhook",
        ),
    ],
)
def test_values_that_no_cluster_can_use_are_refused(cluster: str, more: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(f"cluster: {{{', '.join(part for part in ('enabled: true', cluster) if part)}}}\n{more}\n")
    result = kit.template("--values", file)
    assert result.returncode != 0 and message in result.stderr, result.stderr


def test_values_of_a_cluster_have_no_effect_until_it_is_enabled(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("agent: {interval: 3s}\ncluster: {engine: nats, nats: {servers: ['nats://a:1'], userSecret: {name: a}}}\n")
    assert kit.template("--values", file).stdout == kit.template("--set", "agent.interval=3s").stdout


def test_the_smallest_cluster_needs_no_more_than_replicas(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("cluster: {enabled: true}\ngateway: {replicas: 3}\n")
    result = kit.template("--values", file)
    assert result.returncode == 0, result.stderr
