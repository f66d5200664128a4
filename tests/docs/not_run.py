# SPDX-License-Identifier: Apache-2.0

"""The blocks of documents that no test runs as they stand, each with the reason, and the blocks that other tests run.

A block is named by its document and by the first words of its text. `test_commands.py` compares both tables with the documents.
"""

from typing import Mapping

Table = Mapping[tuple[str, str], str]

BUILDS = "it builds the workspace for minutes to hours: `.ci/run` runs these commands"
CLUSTER = "it needs a cluster of Kubernetes: tests/deploy renders the chart, and tests/kubernetes sends its objects to an API server"
# `test_cargo.py` compares such lines with the manifest of the crate.
CRATES = "it needs a checkout beside the program: tests of docs/install.md and docs/sdk.md add the same crate by its path"
DAEMON = "it needs the daemon of Docker, and images of a registry"
ENGINE = "it needs a GPU and an inference engine: the tests simulate its pages and rings"
FIGURES = "it measures a release build for minutes to hours"
SYSTEM = "it changes the system as root, and needs systemd: tests/dist installs the same files in a root directory"

NOT_RUN: Table = {
    # Drawings.
    ("ARCHITECTURE.md", "commands -> service"): "a drawing of layers: `cargo xtask rules` checks them",
    ("CONTRIBUTING.md", "commands -> service"): "a drawing of layers: `cargo xtask rules` checks them",
    # Programs.
    ("CONTRIBUTING.md", "// SPDX-License-Identifier"): "a component that the gateway does not have",
    ("CONTRIBUTING.md", "#[test]"): "a test of that component",
    # Builds and measurements.
    ("README.md", "cargo run --release"): BUILDS,
    ("bench/README.md", "cargo xtask bench"): FIGURES,
    ("docs/abuse.md", "cargo xtask abuse"): FIGURES,
    ("docs/abuse.md", "go install"): "it builds a Collector from modules of the internet",
    ("docs/measuring.md", "cargo xtask bench otlp"): FIGURES,
    ("docs/measuring.md", "cargo xtask bench instructions"): FIGURES,
    ("docs/measuring-clusters.md", "cargo xtask cluster"): FIGURES,
    ("docs/nixl.md", "cargo build"): BUILDS,
    ("crates/tidegate-metrics/README.md", "cargo add"): CRATES,
    ("docs/telemetry.md", "go tool pprof"): "it opens a prompt: tests/it reads this page of `pprof` and decodes it",
    # Images and clusters.
    ("docs/collector.md", "helm get values"): CLUSTER,
    ("docs/dashboards.md", "docker compose"): DAEMON,
    ("docs/deploy.md", "docker build"): DAEMON,
    ("docs/deploy.md", "docker compose"): DAEMON,
    ("docs/deploy.md", "tar -xf"): "it pushes to a registry: tests/dist/test_image.py runs `pack.py`",
    ("docs/deploy.md", "helm install"): CLUSTER,
    ("docs/deploy.md", "helm upgrade"): CLUSTER,
    ("docs/deploy.md", "kubectl label"): CLUSTER,
    ("docs/deploy.md", "kubectl -n tidegate create secret"): CLUSTER,
    ("docs/deploy.md", "kubectl apply"): CLUSTER,
    ("docs/guides/cluster.md", "kubectl create namespace"): CLUSTER,
    ("docs/guides/nixl-kubernetes.md", "kubectl create namespace"): CLUSTER,
    ("docs/guides/nixl-kubernetes.md", "kubectl --namespace tidegate port-forward"): CLUSTER,
    ("docs/guides/nixl-kubernetes.md", "helm upgrade"): CLUSTER,
    ("docs/guides/vllm-sglang.md", "helm install"): CLUSTER,
    ("docs/guides/vllm-sglang.md", "kubectl --namespace tidegate port-forward"): CLUSTER,
    ("docs/guides/vllm-sglang.md", "kubectl --namespace inference get hpa"): CLUSTER,
    ("docs/guides/sdk.md", "docker run"): DAEMON,
    ("docs/guides/sdk.md", "cp inflight.rs"): "it builds a crate: the test runs the program in Python, and tidegate-metrics has this one as an example",
    ("docs/guides/vllm-sglang.md", "grpcurl"): "grpcurl is not a test peer: tests/it/autoscaling.rs makes the same call",
    # Failures.
    ("docs/composites.md", "$ tidegate explain"): "it needs a server that dies: tests/it/composites.rs stops one of two targets",
    # Systems.
    ("docs/deploy.md", "install -m 755"): SYSTEM,
    ("docs/guides/nixl-bare-metal.md", "apt install"): SYSTEM,
    ("docs/guides/nixl-bare-metal.md", "install -m 644"): SYSTEM,
    ("docs/guides/nixl-kubernetes.md", "install -m 644"): SYSTEM,
    ("docs/install.md", "apt install"): SYSTEM,
    ("docs/install.md", "dnf install"): SYSTEM,
    ("docs/nats.md", "nats stream add"): "the client of NATS is not a test peer: tests/it makes such streams by its protocol",
    # Engines.
    ("crates/tidegate-nixl-plugin/README.md", "NIXL_TELEMETRY_ENABLE"): ENGINE,
    ("docs/nixl.md", "NIXL_TELEMETRY_ENABLE=y\nNIXL_TELEMETRY_DIR"): ENGINE,
    ("docs/nixl.md", "NIXL_TELEMETRY_ENABLE=y\nNIXL_TELEMETRY_EXPORTER"): ENGINE,
    ("docs/python.md", "TIDEGATE_COMPAT"): ENGINE,
    ("docs/guides/dynamo.md", "python3 -m dynamo.frontend"): ENGINE,
    ("docs/guides/dynamo.md", "export PROMETHEUS_ENDPOINT"): ENGINE,
    ("docs/guides/nixl-bare-metal.md", "export NIXL_TELEMETRY_ENABLE"): ENGINE,
    ("docs/guides/vllm-sglang.md", "vllm serve"): ENGINE,
    ("docs/guides/sdk.md", "python3 -m venv"): "tests/dist/test_guide.py has unpacked these files, and pip may not use the network",
}

FIRST_MINUTES = "tests/dist/test_first_minutes.py"

# It runs the blocks of Python.
PYTHON = "python/tests/test_docs.py"

# Blocks that a test elsewhere runs. It names their document.
ELSEWHERE: Table = {
    ("docs/c.md", "tar"): FIRST_MINUTES,
    ("docs/c.md", "c++"): FIRST_MINUTES,
    ("docs/c.md", "cc"): FIRST_MINUTES,
    ("docs/install.md", "setpriv"): FIRST_MINUTES,
    ("docs/install.md", "{}  4"): FIRST_MINUTES,
    ("docs/install.md", "tar -xf tidegate-0.1.0-x86_64"): FIRST_MINUTES,
    ("docs/install.md", "tar -xf tidegate-sdk"): FIRST_MINUTES,
    ("docs/install.md", "python3 -m venv"): FIRST_MINUTES,
    ("docs/python.md", "python3 -m venv"): FIRST_MINUTES,
    ("docs/processors.md", "pipeline metrics/raw"): "tests/it/graph.rs",
}

# Blocks of YAML that neither the gateway nor a schema checks.
NOT_VALIDATED: Table = {
    ("docs/abuse.md", "dist:"): "the builder of Collectors reads it",
    ("docs/configuration.md", "- run:"): "a step of GitHub: `test_commands.py` parses its command",
    ("docs/configuration.md", "# yaml-language-server"): "a comment: tests/editor opens a file that begins with it",
    ("docs/collector.md", "config:"): "values of another chart: `test_commands.py` merges them over its defaults",
    ("docs/deploy.md", "resources: [../../deploy/kustomize/base]"): "Kustomize reads it: tests/deploy builds the base",
}
