# SPDX-License-Identifier: Apache-2.0

"""The kinds of the Prometheus operator and of KEDA, from their modules."""

from pathlib import Path

import server
import yaml


def install(api: server.Server) -> None:
    """Returns when the server knows the kinds."""
    files = sorted(Path(server.program("crds")).glob("*.yaml"))
    assert len(files) == 5
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    for definition in definitions:
        api.create(definition)
    for definition in definitions:
        spec = definition["spec"]
        (version,) = (version["name"] for version in spec["versions"] if version["served"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        server.wait_until(f"{path} is known", lambda: knows(api, path))


def knows(api: server.Server, path: str) -> bool:
    try:
        api.request("GET", path)
    except server.ApiError:
        return False
    return True
