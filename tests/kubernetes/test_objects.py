# SPDX-License-Identifier: Apache-2.0

"""The API server accepts every object of deploy/ and of the documentation. The operator's kinds come from its module, and KEDA's from that of KEDA."""

import re
from pathlib import Path

import kit
import server
import yaml


def definitions() -> list[server.Object]:
    files = sorted(Path(server.program("crds")).glob("*.yaml"))
    assert len(files) == 5
    return [yaml.safe_load(file.read_text()) for file in files]


def kustomized() -> list[server.Object]:
    base = kit.DEPLOY / "kustomize/base"
    files = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    found = [found for file in files for found in yaml.safe_load_all((base / file).read_text()) if found]
    assert len(found) > 5
    return found


def documented() -> list[server.Object]:
    """The objects in the documentation."""
    blocks = [
        block
        for file in sorted((kit.ROOT / "docs").rglob("*.md"))
        for block in re.findall(r"^```yaml\n(.*?)^```", file.read_text(), re.MULTILINE | re.DOTALL)
    ]
    whole = [block for block in blocks if block.startswith("apiVersion:")]
    found = [document for block in whole for document in yaml.safe_load_all(block) if document]
    triggers = [yaml.safe_load(block)["triggers"] for block in blocks if block.startswith("triggers:")]
    assert len(found) >= 5 and len(triggers) >= 2
    return found + [scaled(number, of_block) for number, of_block in enumerate(triggers)]


def scaled(number: int, triggers: list[server.Object]) -> server.Object:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": f"scaled-{number}", "namespace": kit.NAMESPACE},
        "spec": {"scaleTargetRef": {"name": "workers"}, "triggers": triggers},
    }


def accepts(api: server.Server, found: server.Object) -> str:
    """Empty, or why the server refuses the object."""
    try:
        api.create(found, "?dryRun=All&fieldValidation=Strict")
    except server.ApiError as error:
        return f"{found['kind']} {found['metadata']['name']}: {error}"
    return ""


def test_the_server_accepts_every_object(api: server.Server) -> None:
    api.namespace(kit.NAMESPACE)
    for definition in definitions():
        api.create(definition)
    path = "/apis/monitoring.coreos.com/v1/servicemonitors"
    server.wait_until("the kinds of the operator are known", lambda: knows(api, path))
    server.wait_until("the kind of KEDA is known", lambda: knows(api, "/apis/keda.sh/v1alpha1/scaledobjects"))
    refused = []
    count = 0
    for values in kit.MATRIX:
        for found in kit.objects(values):
            count += 1
            refused.append(accepts(api, found))
    for found in [*kustomized(), *documented()]:
        if found["kind"] == "Namespace":
            api.namespace(found["metadata"]["name"])
            continue
        count += 1
        refused.append(accepts(api, found))
    assert not (refused := [why for why in refused if why]), "\n".join(refused)
    assert count > 50
    print(f"{count} objects are accepted")


def test_the_server_refuses_an_object_with_a_wrong_field(api: server.Server) -> None:
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dataa": {}}
    assert "unknown field" in accepts(api, wrong)


def knows(api: server.Server, path: str) -> bool:
    try:
        api.request("GET", path)
    except server.ApiError:
        return False
    return True
