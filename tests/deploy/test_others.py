# SPDX-License-Identifier: Apache-2.0

"""The other ways to run tidegate: the container, Compose, Kustomize and systemd."""

import os
import re
import subprocess
from pathlib import Path

import kit
import yaml

COMPOSE = kit.DEPLOY / "compose"
BASE = kit.DEPLOY / "kustomize/base"
SYSTEMD = kit.DEPLOY / "systemd"

# The largest exposure that `systemd-analyze security` may see, in tenths of 10. The unit explains each relaxed setting.
MOST_EXPOSED = 21


def load(path: Path) -> kit.Object:
    return yaml.safe_load(path.read_text())


def test_hadolint_has_no_complaint_about_the_container() -> None:
    result = kit.run(kit.program("hadolint"), kit.DEPLOY / "container/Containerfile")
    assert result.returncode == 0, result.stdout


def test_the_image_has_a_numeric_user_and_its_version() -> None:
    text = (kit.DEPLOY / "container/Containerfile").read_text()
    (version,) = re.findall(r'^version = "(.+)"', (kit.ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert "\nUSER 10001:10001\n" in text and f"ARG VERSION={version}\n" in text
    chart = load(kit.CHART / "Chart.yaml")
    assert chart["appVersion"] == version


def test_compose_names_existing_files_and_volumes() -> None:
    compose = load(COMPOSE / "compose.yaml")
    for service in compose["services"].values():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            assert source in compose["volumes"] or (COMPOSE / source).exists(), source
        if build := service.get("build"):
            assert (COMPOSE / build["context"] / build["dockerfile"]).is_file()


def test_images_of_compose_are_pinned_and_ports_open_to_this_machine_only() -> None:
    for name, service in load(COMPOSE / "compose.yaml")["services"].items():
        assert re.fullmatch(r"tidegate|.+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_grafana_of_compose_finds_its_data_sources_and_dashboards() -> None:
    services = load(COMPOSE / "compose.yaml")["services"]
    grafana = services["grafana"]
    assert grafana["read_only"] and grafana["cap_drop"] == ["ALL"] and grafana["security_opt"] == services["gateway"]["security_opt"]
    mounts = {target: (COMPOSE / source).resolve() for source, target, mode in (mount.split(":") for mount in grafana["volumes"]) if mode == "ro"}
    (provider,) = load(mounts["/etc/grafana/provisioning/dashboards/tidegate.yaml"])["providers"]
    folder = mounts[provider["options"]["path"]]
    assert folder == kit.DEPLOY / "grafana"
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert mounts[str(home.parent)] == folder and (folder / home.name).is_file()
    sources = load(mounts["/etc/grafana/provisioning/datasources/tidegate.yaml"])["datasources"]
    assert [source["isDefault"] for source in sources if "isDefault" in source] == [True]
    listens = {"prometheus": {9090}, "gateway": kit.listens(load(COMPOSE / "gateway.yaml"))}
    for source in sources:
        host, port = source["url"].removeprefix("http://").split(":")
        assert source["type"] == "prometheus" and host in services and int(port) in listens[host]
    interval = load(COMPOSE / "prometheus.yaml")["global"]["scrape_interval"]
    assert sources[0]["jsonData"]["timeInterval"] == interval


def test_compose_has_the_composites_and_alerts_that_dashboards_show() -> None:
    ours, quickstart = (load(file)["processors"]["composite"] for file in (COMPOSE / "gateway.yaml", kit.ROOT / "config/quickstart.yaml"))
    assert ours == quickstart
    (rules,) = load(COMPOSE / "prometheus.yaml")["rule_files"]
    volumes = load(COMPOSE / "compose.yaml")["services"]["prometheus"]["volumes"]
    assert f"../alerts/tidegate.yaml:/etc/prometheus/{rules}:ro" in volumes


def test_the_gateway_of_compose_is_valid_and_publishes_its_ports() -> None:
    result = kit.validate([COMPOSE / "gateway.yaml"], {})
    assert result.returncode == 0 and not result.stderr, result.stderr
    listens = kit.listens(load(COMPOSE / "gateway.yaml"))
    published = {int(port.split(":")[-1]) for port in load(COMPOSE / "compose.yaml")["services"]["gateway"]["ports"]}
    jobs = load(COMPOSE / "prometheus.yaml")["scrape_configs"]
    scraped = {int(job["static_configs"][0]["targets"][0].split(":")[1]) for job in jobs}
    assert listens == published | scraped
    checked = kit.run(kit.program("promtool"), "check", "config", "--syntax-only", COMPOSE / "prometheus.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_simulated_node_of_compose_is_a_valid_command(tmp_path: Path) -> None:
    command = [str(word) for word in load(COMPOSE / "compose.yaml")["services"]["node"]["command"]]
    at = command.index("--directory") + 1
    result = kit.run(kit.program("binary"), *command[:at], tmp_path, *command[at + 1 :], "--seconds", "0")
    assert result.returncode == 0 and len(list(tmp_path.iterdir())) == 8, result.stderr


def test_the_base_of_kustomize_is_the_chart_with_its_defaults() -> None:
    maps = ["--set", "agent.existingConfigMap=tidegate-agent", "--set", "gateway.existingConfigMap=tidegate-gateway"]
    text = kit.template(*maps, release="tidegate", namespace="tidegate").stdout
    lines = [line for line in text.splitlines() if not re.search(r"# Source:|helm\.sh/chart:|managed-by: Helm", line)]
    header = "# Made from the chart deploy/helm/tidegate: `UPDATE_GOLDEN=1 cargo xtask deploy` writes it again. Patch it, do not edit it."
    expected = {"tidegate.yaml": "\n".join([header, *lines]) + "\n"}
    defaults = yaml.safe_load_all(kit.template(release="tidegate", namespace="tidegate").stdout)
    for found in defaults:
        if found["kind"] == "ConfigMap":
            expected[f"{found['metadata']['name'].removeprefix('tidegate-')}-config.yaml"] = found["data"]["config.yaml"]
    assert len(expected) == 3
    for name, content in expected.items():
        if "UPDATE_GOLDEN" in os.environ:
            (BASE / name).write_text(content)
        assert (BASE / name).read_text() == content, f"{name} is old: run `UPDATE_GOLDEN=1 cargo xtask deploy`"


def test_kustomize_generates_the_config_maps_that_pods_mount() -> None:
    kustomization = load(BASE / "kustomization.yaml")
    generated = {found["name"] for found in kustomization["configMapGenerator"]}
    files = [file.split("=") for found in kustomization["configMapGenerator"] for file in found["files"]]
    assert all(key == "config.yaml" and (BASE / file).is_file() for key, file in files)
    resources = [found for file in kustomization["resources"] for found in yaml.safe_load_all((BASE / file).read_text())]
    pods = [kit.pod(found) for found in resources if found["kind"] in ("DaemonSet", "StatefulSet")]
    mounted = {volume["configMap"]["name"] for pod in pods for volume in pod["volumes"] if "configMap" in volume}
    assert mounted == generated
    (namespace,) = (found["metadata"]["name"] for found in resources if found["kind"] == "Namespace")
    assert namespace == kustomization["namespace"]
    assert {found["metadata"]["namespace"] for found in resources if found["kind"] != "Namespace"} == {namespace}


def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    text = (SYSTEMD / "tidegate.service").read_text()
    file = tmp_path / "tidegate.service"
    file.write_text(text.replace("/usr/bin/tidegate", kit.program("binary")))
    return file


def systemd_analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs systemd-analyze of unpacked packages, with the libraries and units of these packages."""
    root = Path(kit.program("systemd"))
    libraries = [str(found) for pattern in ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/systemd") for found in root.glob(pattern)]
    # Debian 12 has units in /lib, Debian 13 in /usr/lib.
    units = [str(root / directory) for directory in ("lib/systemd/system", "usr/lib/systemd/system")]
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "SYSTEMD_UNIT_PATH": ":".join(units)}
    return kit.run(root / "usr/bin/systemd-analyze", *arguments, env=environment)


def test_systemd_accepts_the_unit_without_a_warning(tmp_path: Path) -> None:
    result = systemd_analyze("verify", "--man=no", "--recursive-errors=no", unit(tmp_path))
    # It also warns of symbolic links in the part, whose path may have the name of the checkout.
    assert result.returncode == 0 and "tidegate.service" not in result.stderr, result.stderr


def test_the_unit_is_confined_as_far_as_shared_memory_allows(tmp_path: Path) -> None:
    limit = f"--threshold={MOST_EXPOSED}"
    result = systemd_analyze("security", "--offline=true", "--no-pager", limit, unit(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_unit_may_write_where_engines_and_the_gateway_share_memory() -> None:
    text = (SYSTEMD / "tidegate.service").read_text()
    (writable,) = re.findall(r"^ReadWritePaths=(.*)$", text, re.MULTILINE)
    made = re.findall(r"^d (\S+) ", (SYSTEMD / "tidegate.tmpfiles").read_text(), re.MULTILINE)
    roots = [path.removeprefix("-") for path in writable.split()]
    assert made and all(any(path == root or path.startswith(root + "/") for root in roots) for path in made)
    result = kit.validate([SYSTEMD / "config.yaml"], {})
    assert result.returncode == 0 and not result.stderr, result.stderr
