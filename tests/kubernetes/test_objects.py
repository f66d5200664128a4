# SPDX-License-Identifier: Apache-2.0

"""The API server accepts every object of deploy/ and of the documentation. The operator's kinds come from its module, and KEDA's from that of KEDA."""

import re

import custom
import kit
import pytest
import server
import yaml


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


def deployed() -> list[server.Object]:
    """The objects of deploy/: of the chart with each values file, also those of the Collector's chart, and the examples of KEDA."""
    charts = [found for values in kit.MATRIX for found in kit.objects(values)]
    collectors = [found for values in kit.COLLECTORS for found in kit.collector_objects(values)]
    examples = [yaml.safe_load(file.read_text()) for file in sorted((kit.DEPLOY / "keda").glob("*.yaml"))]
    assert len(collectors) > 10 and len(examples) == 4
    found = charts + collectors + examples + kustomized()
    assert set(kit.CUSTOM) <= {each["kind"] for each in found}
    return found


def test_the_server_accepts_every_object(api: server.Server) -> None:
    custom.install(api)
    everything = [*deployed(), *documented()]
    names = {found["metadata"]["name"] for found in everything if found["kind"] == "Namespace"}
    names |= {found["metadata"].get("namespace", "default") for found in everything}
    for name in sorted(names - {"default"}):
        api.namespace(name)
    objects = [found for found in everything if found["kind"] != "Namespace"]
    assert not (refused := [why for found in objects if (why := accepts(api, found))]), "\n".join(refused)
    assert len(objects) > 50
    print(f"{len(objects)} objects are accepted")


def test_the_server_refuses_triggers_that_keda_would_not_read(api: server.Server) -> None:
    custom.install(api)
    found = yaml.safe_load((kit.DEPLOY / "keda/queue.yaml").read_text())
    api.namespace(found["metadata"]["namespace"])
    (trigger,) = found["spec"]["triggers"]
    assert not accepts(api, found)
    at = "spec.triggers[0]"
    wrong = {
        f"{at}.metadata: Required value": {"type": trigger["type"]},
        f"{at}.type: Required value": {"metadata": trigger["metadata"]},
        f"{at}.metadata.target: Invalid value": trigger | {"metadata": trigger["metadata"] | {"target": 10}},
        f"{at}.metadata: Invalid value": trigger | {"metadata": ["target=10"]},
    }
    for message, broken in wrong.items():
        found["spec"]["triggers"] = [broken]
        with pytest.raises(server.ApiError) as refused:
            api.create(found, "?dryRun=All&fieldValidation=Strict")
        assert refused.value.code == 422 and message in str(refused.value), refused.value


def test_the_server_refuses_an_object_with_a_wrong_field(api: server.Server) -> None:
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dataa": {}}
    assert "unknown field" in accepts(api, wrong)
