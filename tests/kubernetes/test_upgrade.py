# SPDX-License-Identifier: Apache-2.0

"""The API server takes the chart of today over each frozen chart, as `helm upgrade` sends it. tests/deploy/test_upgrade.py compares their fields."""

from pathlib import Path

import custom
import frozen
import kit
import pytest
import server


def new(values: Path, release: str) -> list[server.Object]:
    result = kit.template("--values", values, release=release)
    assert result.returncode == 0, result.stderr
    return kit.documents(result.stdout)


def refusals(api: server.Server, objects: list[server.Object]) -> list[str]:
    found = []
    for each in objects:
        try:
            api.apply(each)
        except server.ApiError as error:
            found.append(f"{each['kind']} {each['metadata']['name']}: {error}")
    return found


def test_the_server_takes_the_new_objects_over_the_old_ones(api: server.Server) -> None:
    custom.install(api)
    names: set[str] = set()
    count = 0
    for version in frozen.versions():
        for number, values in enumerate(frozen.matrix(version)):
            # A release of its own for each file. `fullnameOverride` of one file leaves out the name of the release.
            release = f"r{number}-v{version.replace('.', '-')}"
            before, after = frozen.objects(version, values, release), new(values, release)
            needed = {found["metadata"]["namespace"] for found in after if "namespace" in found["metadata"]}
            for name in needed - names:
                api.namespace(name)
            names |= needed
            assert not (refused := refusals(api, before)), "\n".join(refused)
            assert not (refused := refusals(api, after)), f"{version} {values.stem}:\n" + "\n".join(refused)
            for found in after:
                there = api.request("GET", api.path(found, name=True))
                chart = found["metadata"].get("labels", {}).get("helm.sh/chart")
                assert there["metadata"]["labels"]["helm.sh/chart"] == chart == f"tidegate-{frozen.version(kit.CHART)}"
            count += len(after)
            for found in after:
                api.delete(found)
    assert count > 50
    print(f"{count} objects are upgraded")


def test_the_server_refuses_a_changed_selector(api: server.Server) -> None:
    api.namespace(kit.NAMESPACE)
    (workload,) = kit.of_kind(kit.CHART / "ci/defaults.yaml", "DaemonSet")
    api.apply(workload)
    workload["spec"]["selector"]["matchLabels"] = {"a": "b"}
    workload["spec"]["template"]["metadata"]["labels"]["a"] = "b"
    with pytest.raises(server.ApiError) as refused:
        api.apply(workload)
    assert refused.value.code == 422 and "immutable" in str(refused.value)
