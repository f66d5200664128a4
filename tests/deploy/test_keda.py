# SPDX-License-Identifier: Apache-2.0

"""The ScaledObjects of deploy/keda and of the chart, asked as KEDA asks: a gateway scrapes servers that serve, and then end."""

import struct
from pathlib import Path
from typing import Iterator

import engines
import grpc
import kit
import live
import pytest
import yaml

EXAMPLES = sorted((kit.DEPLOY / "keda").glob("*.yaml"))
SCALING = kit.CHART / "ci/scaling.yaml"

# The models that the ScaledObjects name, with the requests that wait in each of two servers, and the share of its cache in use.
MODELS = {"llama": (23, 0.2), "mistral": (4, 0.1), "mixtral": (5, 0.96), "on-demand": (0, 0.0), "qwen": (31, 0.4)}


def page(_: float) -> str:
    names = {"vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": 1}
    families = {name: [f'{name}{{engine="0",model_name="{model}"}} {values[at]}' for model, values in MODELS.items()] for name, at in names.items()}
    return "".join(engines.family(name, "gauge", lines) for name, lines in families.items())


class Scaled(live.Fleet):
    """A gateway of config/autoscaling.yaml with its two servers."""

    def start(self) -> None:
        listeners = ("ADMIN", "PROMETHEUS", "HEALTH", "OWN_METRICS")
        self.gateways = {"gateway": {f"{each}_ENDPOINT": self.ports.address() for each in listeners}}
        self.ports.release()
        variables = {"VLLM_A": self.serve(page), "VLLM_B": self.serve(page), "COMPOSITE_PAGE": str(self.directory / "page")}
        self.run("gateway", *self.config("autoscaling.yaml"), **variables)
        self.address = self.gateways["gateway"]["ADMIN_ENDPOINT"]
        self.reader = live.Reader("gateway", self.address)
        live.wait_for("the gateway answers", self.reader.answers)
        live.wait_for("the gateway has values", self.has_values)

    def has_values(self) -> bool:
        """Of both servers. An absent composite is an error without `or`."""
        depth = self.reader.value('sum(queue_depth{model_name="llama"} or vector(0))')
        return depth == 2 * MODELS["llama"][0]

    def ask(self, call: str, metadata: dict[str, str]) -> dict[int, list[bytes]]:
        """The fields of an answer; its first message, if it lists any."""
        reference = b"".join(field(3, field(1, key.encode()) + field(2, value.encode())) for key, value in metadata.items())
        reference = field(1, b"scaled") + field(2, b"inference") + reference
        with grpc.insecure_channel(self.address) as channel:
            method = channel.unary_unary(f"/externalscaler.ExternalScaler/{call}")
            answer = fields(method(field(1, reference) if call == "GetMetrics" else reference, timeout=60))
        return answer if call == "IsActive" else fields(answer[1][0])


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    """A string or message of Protobuf."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a message. Numbers are as they came, so a `double` has 8 bytes."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        start = at
        while message[at] & 0x80:
            at += 1
        at += 1
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(message[start:at]))

    while at < len(message):
        key = number()
        start, kind = at, key & 7
        if kind == 2:
            length = number()
            start, at = at, at + length
        elif kind == 1:
            at += 8
        else:
            number()
        found.setdefault(key >> 3, []).append(message[start:at])
    return found


def double(content: dict[int, list[bytes]], number: int) -> float:
    """Of a `double`, 0 if it is absent, as Protobuf leaves it out."""
    return struct.unpack("<d", content[number][0])[0] if number in content else 0.0


def scaled() -> dict[str, kit.Object]:
    examples = {file.stem: yaml.safe_load(file.read_text()) for file in EXAMPLES}
    return examples | {f"chart-{found['metadata']['name']}": found for found in kit.of_kind(SCALING, "ScaledObject")}


def triggers() -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Each trigger, with its ScaledObject and the model that it names."""
    for name, found in scaled().items():
        (trigger,) = found["spec"]["triggers"]
        (model,) = {model for model in MODELS if model in " ".join(trigger["metadata"].values())}
        yield name, model, trigger["type"], trigger["metadata"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scaled]:
    with Scaled(tmp_path_factory.mktemp("keda")) as found:
        assert isinstance(found, Scaled)
        yield found


def test_each_kind_of_trigger_is_tried() -> None:
    kinds = {kind for _, _, kind, _ in triggers()}
    assert kinds == {"external", "external-push", "prometheus"} and len(EXAMPLES) == 4


def test_addresses_are_those_of_the_gateway_of_the_chart() -> None:
    gateway, chart = "tidegate-gateway.tidegate.svc:8080", f"prod-tidegate-gateway.{kit.NAMESPACE}.svc:8080"
    for name, _, _, metadata in triggers():
        address = metadata.get("scalerAddress", metadata.get("serverAddress", "").removeprefix("http://"))
        assert address == (chart if name.startswith("chart-") else gateway), name
    (service,) = (found for found in kit.of_kind(SCALING, "Service") if found["metadata"]["name"] == "prod-tidegate-gateway")
    assert 8080 in [port["port"] for port in service["spec"]["ports"]]
    documents = kit.documents(kit.template(release="tidegate", namespace="tidegate").stdout)
    assert "tidegate-gateway" in [found["metadata"]["name"] for found in documents if found["kind"] == "Service"]


def test_each_scaled_object_says_what_happens_while_the_value_is_unknown() -> None:
    assert scaled()
    for name, found in scaled().items():
        spec, metadata = found["spec"], found["spec"]["triggers"][0]["metadata"]
        assert spec["minReplicaCount"] <= spec["maxReplicaCount"], name
        assert "fallback" in spec or metadata.get("whenGone") == "inactive", name


def test_the_gateway_answers_what_keda_asks(fleet: Scaled) -> None:
    asked = 0
    for name, model, kind, metadata in triggers():
        waiting, cache = 2 * MODELS[model][0], MODELS[model][1]
        if kind == "prometheus":
            live.wait_for(f"the value of {name}", lambda: fleet.reader.value(metadata["query"]) == waiting)
            continue
        ratio = "signals" in metadata
        expected = max(waiting / 10, cache / 0.8) if ratio else float(waiting)
        assert double(fleet.ask("GetMetricSpec", metadata), 3) == (1.0 if ratio else 10.0), name
        live.wait_for(f"{name} has {expected}", lambda: has(fleet, metadata, expected))
        asked += 1
    assert asked == 5


def has(fleet: Scaled, metadata: dict[str, str], expected: float) -> bool:
    """Whether KEDA gets this value. A scrape that is late on a busy machine may leave it unknown for a moment."""
    try:
        value = double(fleet.ask("GetMetrics", metadata), 3)
        is_active = fleet.ask("IsActive", metadata).get(1) == [b"\x01"]
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
            raise
        return False
    return value == pytest.approx(expected) and is_active == (expected > 0)


def test_servers_that_end_make_errors_and_no_zeros(fleet: Scaled) -> None:
    for server in fleet.servers:
        server.shutdown()
        server.server_close()
    for name, _, kind, metadata in triggers():
        if kind != "prometheus":
            live.wait_for(f"{name} is an error", lambda: refuses(fleet, metadata))
    fleet.servers.clear()


def refuses(fleet: Scaled, metadata: dict[str, str]) -> bool:
    try:
        fleet.ask("GetMetrics", metadata)
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.FAILED_PRECONDITION
    return False


def test_a_wrong_key_is_refused(fleet: Scaled) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        fleet.ask("GetMetricSpec", {"composite": "queue_depth", "target": "10", "whengone": "inactive"})
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_policies_let_the_operator_of_keda_ask() -> None:
    (policy,) = (found for found in kit.of_kind(SCALING, "NetworkPolicy") if found["metadata"]["name"].endswith("-gateway"))
    keda = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    assert [rule["ports"] for rule in policy["spec"]["ingress"] if keda in rule["from"]] == [[{"port": "api"}]]


GIVEN = "name: a, target: {name: a}, minReplicas: 1, maxReplicas: 2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("composite: b, value: '1'", "asks for the composite b, which gateway.composites does not declare"),
        ("signals: ['b{c=d}/1']", "asks for the composite b"),
        ("signals: [b]", "signals"),
        ("value: '1'", "set one of composite, query and signals"),
        ("composite: b, query: c, value: '1'", "set one of composite, query and signals"),
        ("query: b", "set value, what a replica should have"),
        ("query: b, value: 1", "value"),
        ("query: b, value: '0'", "value must be greater than zero"),
        ("query: b, value: '0.0', trigger: prometheus", "value must be greater than zero"),
        ("signals: ['b/1'], value: '1'", "remove value"),
        ("signals: ['b/1'], trigger: prometheus", "takes only query"),
        ("query: b, value: '1', trigger: prometheus, labels: {c: d}", "write {label=value} into query"),
        ("query: b, value: '1', labels: {c: d}", "write {label=value} into query"),
        ("signals: ['b/1'], labels: {c: d}", "write {label=value} into query or signals"),
        ("query: b, value: '1', trigger: prometheus, combine: sum", "combine has no effect with trigger: prometheus: remove it, and write the aggregation"),
        ("query: b, value: '1', trigger: prometheus, metricName: c", "metricName has no effect with trigger: prometheus: remove it"),
        ("query: b, value: '1', trigger: prometheus, onPartial: use", "onPartial has no effect with trigger: prometheus: set trigger: external"),
        ("query: b, value: '1', trigger: prometheus, whenGone: inactive", "whenGone has no effect with trigger: prometheus: set trigger: external"),
        ("query: b, value: '1', trigger: kafka", "trigger"),
        ("query: b, value: '1', minReplicas: 3", "minReplicas is above maxReplicas"),
        ("query: b, value: '1', fallback: {replicas: 1}", "failureThreshold"),
        ("query: b, value: '1', whenGone: zero", "whenGone"),
        ("query: b, value: '1', label: {}", "'label' not allowed"),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_the_value(options: str, message: str, tmp_path: Path) -> None:
    whole = yaml.safe_load(f"{{{GIVEN}}}") | yaml.safe_load(f"{{{options}}}")
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"scaledObjects": [whole]}))
    result = kit.template("--values", file)
    assert result.returncode != 0 and message in result.stderr, result.stderr
