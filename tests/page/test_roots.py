# SPDX-License-Identifier: Apache-2.0

"""The roots of the other ports in a real browser: people who open one find links to what the port serves."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Iterator

import kit
import pytest
from playwright.sync_api import Browser
from ports import free_ports

EXTENSIONS = """
  health_check: {{endpoint: "127.0.0.1:{health}"}}
  health_check/moved: {{endpoint: "127.0.0.1:{moved}", path: /live}}
  zpages: {{endpoint: "127.0.0.1:{zpages}"}}"""

EXPORTERS = """  prometheus/moved: {{endpoint: "127.0.0.1:{metrics}", path: /own/path}}"""

# The paths that the root of each port links to.
LINKS = {
    "metrics": {"/own/path", "/debug"},
    "own": {"/metrics"},
    "zpages": {"/debug/servicez", "/debug/pipelinez", "/debug/extensionz", "/debug/featurez", "/debug/tracez"},
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """The ports of a gateway by what they serve."""
    names = ("health", "moved", "zpages", "metrics")
    found = dict(zip(names, free_ports(len(names))))
    with kit.Gateway(
        tmp_path_factory.mktemp("gateway"),
        extensions=EXTENSIONS.format(**found),
        order="health_check, health_check/moved, zpages, ",
        exporters=EXPORTERS.format(**found),
        pipelines="    metrics/moved: {receivers: [otlp], exporters: [prometheus/moved]}",
        is_loaded=False,
    ) as gateway:
        yield found | {"own": gateway.own}


def answer(port: int, path: str) -> tuple[int, str]:
    """The status and the body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize("name", LINKS)
def test_each_link_of_a_root_leads_to_a_page(name: str, ports: dict[str, int], browser: Browser) -> None:
    root = f"http://127.0.0.1:{ports[name]}"
    with kit.Watched(browser, root) as watched:
        page = watched.page
        opened = page.goto(f"{root}/")
        assert opened is not None and opened.ok and "tidegate" in page.title()
        links = {link.get_attribute("href") or "" for link in page.locator("a").all()}
        assert links == LINKS[name]
        for link in sorted(links):
            page.goto(f"{root}/")
            with page.expect_response(f"{root}{link}") as response:
                page.locator(f'a[href="{link}"]').first.click()
            assert response.value.status == 200, link
        # The browser also asks each server for an icon. These servers have none.
        assert [error for error in watched.errors if "404 (Not Found)" not in error] == []


def test_the_root_of_the_health_check_is_its_probe(ports: dict[str, int]) -> None:
    status, body = answer(ports["health"], "/")
    assert (status, json.loads(body)["status"]) == (200, "Server available")


def test_the_root_of_a_moved_probe_names_its_path(ports: dict[str, int]) -> None:
    assert answer(ports["moved"], "/") == (404, '{"error":"the probe is at /live"}')
    status, body = answer(ports["moved"], "/live")
    assert (status, json.loads(body)["status"]) == (200, "Server available")
