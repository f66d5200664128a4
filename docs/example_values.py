# SPDX-License-Identifier: Apache-2.0

"""Values for the rows of options in docs/reference that have none: neither a default, nor a value in the example of the page.

The end of an option's path chooses the value, or else the type of the option does. A map has the value of an option inside it.
"""

import re
from typing import Any

Row = dict[str, Any]

# Defaults that show no value. A required option has none.
WITHOUT_VALUE = (None, "unset", "{}", "[]")

# What the program prints for the default of a secret, which is an empty text.
SECRET = "[REDACTED]"

# What descriptions say of options that do nothing.
WITHOUT_EFFECT = "without effect"

# The ends of paths, without `[]`, as regular expressions for whole names. The first whose value has the form of the type counts.
BY_END = {
    # Files.
    "(auth|nats)::credentials_file": "/etc/tidegate/gateway.creds",
    "(bearer_)?token_file|authorization::credentials_file": "/etc/tidegate/token",
    "credentials_file": "/etc/tidegate/credentials",
    "ca_file|client_ca_file|certificate": "/etc/tidegate/tls/ca.pem",
    "cert_file|client_certificate": "/etc/tidegate/tls/tls.crt",
    "key_file|client_key": "/etc/tidegate/tls/tls.key",
    "kubeconfig_file": "/etc/tidegate/kubeconfig",
    "password_file": "/etc/tidegate/password",
    "username_file": "/etc/tidegate/username",
    "path": "/run/tidegate/events.sock",
    "directories": "[/usr/lib/tidegate/plugins]",
    "http_headers::NAME::files": "[/etc/tidegate/header]",
    "file_sd_configs::files": '["/etc/prometheus/targets/*.yaml"]',
    # Secrets.
    "(response_headers|headers|record_headers)::value": "${env:HEADER}",
    "headers::default_value": "anonymous",
    "headers_list": "${env:OTEL_EXPORTER_OTLP_HEADERS}",
    "tokens": '["${env:TOKEN}", "${env:OLD_TOKEN}"]',
    # Headers, labels and attributes.
    "response_headers": "{Cache-Control: no-store}",
    "response_headers::name": "Cache-Control",
    "record_headers": "{source: gpu-node}",
    "record_headers::name": "source",
    "headers": '{X-Scope-OrgID: "${env:TENANT}"}',
    "headers::name": "X-Scope-OrgID",
    "header_extraction::headers|include_metadata_keys|metadata_keys": "[x-tenant]",
    "http_headers": "{X-Scope-OrgID: {values: [inference]}}",
    "http_headers::NAME::values": "[inference]",
    "http_headers::NAME::secrets": '["${env:TENANT}"]',
    "allowed_headers|exposed_headers": "[X-Request-Id]",
    "match_labels": "{app: vllm}",
    "match_expressions::key": "app",
    "match_expressions::values": "[vllm, sglang]",
    "labels": "{cluster: gpu-east}",
    "source_labels": "[__address__]",
    "target_label": "instance",
    "(external|const)_labels": "{cluster: gpu-east}",
    "resource_attributes::key": "service.name",
    "resource_attributes::value": "vllm",
    "attributes::key": "model_name",
    "attributes::value": "llama",
    "(fields|labels)::key": "app",
    "from_attribute": "k8s.pod.name",
    "attributes": "{model_name: llama}",
    "by": "[model_name]",
    "without": "[pid]",
    "excluded": "[process.pid]",
    "included": "[service.name]",
    "attribute_keys": "{included: [component]}",
    "params": '{"match[]": ["up"]}',
    # Addresses.
    "allowed_hosts": "[gateway.example.com]",
    "allowed_origins": '["https://dashboard.example.com"]',
    "api_server": "https://kubernetes.example.com:6443",
    "http_sd_configs::url": "https://targets.example.com/sd",
    "target_allocator::endpoint": "http://allocator.monitoring:8080",
    "exporter::(otlp|otlp_grpc|otlp_http)::endpoint": "http://localhost:4317",
    "serve::endpoint": "10.0.0.5:7946",
    "endpoint": "https://otlp.example.com:4318",
    "authority|server_name(_override)?": "gateway.example.com",
    "direct::replicas": '["gateway-0.tidegate:7946", "gateway-1.tidegate:7946"]',
    "direct::dns": "tidegate-headless.monitoring:7946",
    "static::hostnames": '["gateway-0:4317", "gateway-1:4317"]',
    "k8s::service": "gateway.monitoring",
    "dns_sd_configs::names": "[_metrics._tcp.example.com]",
    "dns_sd_configs::servers": '["10.0.0.53:53"]',
    "dns_sd_configs::port": "8000",
    # Names.
    "names": "[inference]",
    "filter::namespace": "inference",
    "authenticator": "basicauth/server",
    "storage": "file_storage",
    "only_leader": "cluster",
    "exporter": "prometheus/engines",
    "daemonset": "inference/tidegate-agent",
    "leader::lease": "inference/tidegate",
    "group_instance_id|producer|serve::name": "gateway-0",
    "rack_id": "eu-central-1a",
    "expect": "[gateway-0, gateway-1]",
    "username": "gateway",
    "engine::kafka::topic": "tidegate.gpu-east",
    "engine::nats::stream": "tidegate_gpu-east",
    "traces::topic": "otlp_spans",
    "logs::topic": "otlp_logs",
    "topic": "otlp_metrics",
    "traces::topics": "[otlp_spans]",
    "logs::topics": "[otlp_logs]",
    "topics": "[otlp_metrics]",
    "traces::subject": "otlp.traces",
    "logs::subject": "otlp.logs",
    "subject": "otlp.metrics",
    "subjects": '["otlp.>"]',
    "stream": "telemetry",
    "durable": "gateway",
    "libraries::name": "vllm",
    "libraries::version": "1.2.0",
    "services": "[vllm]",
    "span_names": "[prefill]",
    "span_kinds": "[SPAN_KIND_SERVER]",
    "log_bodies": "[out of memory]",
    "log_severity_texts": "[ERROR]",
    "metric_names": '["vllm:num_requests_waiting"]',
    "thresholds::name": "busy",
    "composites::name": "queue_depth",
    "rules::name|metric|instrument_name": "agent_xfer_time",
    "meter_name": "tidegate",
    "events": '["agent_xfer_*"]',
    "exclude": '["*.tmp"]',
    "description": "Requests that wait",
    "unit": "s",
    "expr": "sum(rate(requests_total[1m]))",
    "compression_algorithms": "[gzip, zstd]",
    "name": "engines",
    "healthy": "ready",
    "levels": '{"exporters::otlphttp/vendor": debug}',
    # Numbers.
    "above": "100",
    "clear": "80",
    "below": "10",
    "(across_)?quantile": "0.9",
    "quantiles": "[0.5, 0.9, 0.99]",
    "bounds": "[0.1, 0.5, 1, 5]",
    "max_buckets": "160",
    "max_recv_msg_size_mib": "16",
    "replication_factor": "3",
    "max_connections_per_peer": "64",
    "max_samples": "10000000",
    "max_batch_request_parallelism": "8",
    "allowed_gids|allowed_uids": "[1000]",
}

BY_TYPE = {
    "empty map": "{}",
    "non-negative integer": "10000",
    "positive integer": "10000",
}


# Options that stand beside another one in the value of a map.
BESIDE = {
    "cert_file": ("key_file",),
    "username": ("password",),
    "mechanism": ("username", "password"),
    "type": ("credentials",),
    "match_type": ("services",),
    "name": ("metric", "function", "above"),
    "key": ("value",),
    "operator": ("values",),
    "source_labels": ("target_label",),
}

# What may stand between the path of an option and that of an option inside it, and the value of the outer one.
INSIDE = {
    "::": "{%s}",
    "[]::": "[{%s}]",
    "::NAME::": "{NAME: {%s}}",
    "::NAME[]::": "{NAME: [{%s}]}",
}


def names_of(path: str) -> list[str]:
    """The names of a path, such as `a[]::b`."""
    return [name.removesuffix("[]") for name in path.split("::")]


def has_form(value: str, kind: str) -> bool:
    """Whether a value may be of a type: a list, a map, or neither."""
    if kind.startswith("list of maps"):
        return value.startswith("[{")
    if kind.startswith("list"):
        return value.startswith("[")
    if kind.startswith("map") or kind == "included and excluded":
        return value.startswith("{")
    return not value.startswith(("[", "{")) or value == "{}"


def by_end(option: Row) -> str | None:
    path = "::".join(names_of(option["path"]))
    fitting = (value for end, value in BY_END.items() if re.search(rf"(?:^|::)(?:{end})$", path))
    return next((value for value in fitting if has_form(value, option["type"])), None)


def is_without_effect(option: Row) -> bool:
    return bool(option["is_without_effect"]) or WITHOUT_EFFECT in option["description"]


def is_in_example(option: Row, example: str) -> bool:
    """Whether the example of the page has an option of this name."""
    return re.search(rf"(?<![\w-]){re.escape(names_of(option['path'])[-1])}:", example) is not None


def inside(option: Row, options: list[Row]) -> tuple[str, list[Row]]:
    """The form of a map, and the options directly inside it."""
    for between, form in INSIDE.items():
        begin = f"{option['path']}{between}"
        found = [each for each in options if each["path"].startswith(begin) and not is_without_effect(each)]
        direct = [each for each in found if "::" not in each["path"].removeprefix(begin)]
        if direct:
            return form, direct
    return "{}", []


def quoted(value: str) -> str:
    """A value inside a map. A reference to a variable has signs of maps."""
    return f'"{value}"' if value.startswith("${") else value


def map_of(option: Row, options: list[Row]) -> str | None:
    """The required options inside an option, or else the first one, with those that stand beside them."""
    form, direct = inside(option, options)
    if not direct:
        return form
    named = {names_of(each["path"])[-1]: each for each in direct}
    chosen = [name for name, each in named.items() if each["is_required"]]
    chosen = chosen or [name for name, each in named.items() if value_of(each, options) is not None][:1]
    for name in list(chosen):
        chosen += [more for more in BESIDE.get(name, ()) if more in named and more not in chosen]
    values = ((name, value_of(named[name], options)) for name in chosen)
    found = [f"{name}: {quoted(value)}" for name, value in values if value is not None]
    return form.replace("%s", ", ".join(found)) if found else None


def of_program(option: Row) -> str | None:
    """The value that the program has, in the form of the type: for a list, it may have one item."""
    if option["example"] in (None, SECRET):
        return None
    # Some values have a remark.
    text = re.sub(r" \(.*\)$", "", option["example"])
    if has_form(text, option["type"]) or not option["type"].startswith("list of "):
        return text
    return f"[{text}]"


def value_of(option: Row, options: list[Row]) -> str | None:
    """A value of an option as YAML."""
    found = of_program(option)
    if found is None or not has_form(found, option["type"]):
        found = by_end(option) or found
    if found:
        return found
    if option["type"] in ("map", "list of maps", "map of maps"):
        return map_of(option, options)
    if option["type"] == "string (secret)":
        return f"${{env:{names_of(option['path'])[-1].upper()}}}"
    return BY_TYPE.get(option["type"])


def example_of(option: Row, options: list[Row], example: str) -> str | None:
    """The value that the row of an option shows beside its default. `example` is that of the page."""
    if option["example"] not in (None, option["default"]):
        return value_of(option, options)
    if option["default"] not in WITHOUT_VALUE or is_in_example(option, example) or is_without_effect(option):
        return None
    return None if "for example `" in option["description"] else value_of(option, options)
