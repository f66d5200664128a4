# SPDX-License-Identifier: Apache-2.0

"""The site of docs/: it builds, its links lead somewhere, nothing comes from other servers, and its search finds pages."""

import functools
import subprocess
import sys
import threading
from collections import defaultdict
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import TimeoutError as NotYet

ROOT = Path(__file__).parents[2]

# Tags whose addresses a browser loads by itself.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}


@pytest.fixture(scope="session")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("site")
    # A version that was built before.
    (output / "0.0.1").mkdir()
    (output / "0.0.1/index.html").write_text("old")
    result = subprocess.run([sys.executable, str(ROOT / "docs/site.py"), str(output)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return output


@pytest.fixture(scope="session")
def site(output: Path) -> Path:
    (site,) = [path for path in output.iterdir() if path.is_dir() and path.name != "0.0.1"]
    return site


class Links(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        address = found.get(LOADED.get(tag, ""))
        if address and found.get("rel") != "canonical":
            self.loaded.append(address)


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Links]:
    # Its links begin at the root of a server.
    return {path: Links(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_to_a_file_and_an_anchor(site: Path, pages: dict[Path, Links]) -> None:
    broken = defaultdict(list)
    count = 0
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target == site.parent or target.is_dir():
                target /= "index.html"
            has_anchor = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
            if not target.is_file() or not has_anchor:
                broken[path.relative_to(site).as_posix()].append(link)
    assert count > 5000
    assert not broken, dict(broken)


def test_every_document_is_a_page_of_the_navigation(site: Path, pages: dict[Path, Links]) -> None:
    start = site / "index.html"
    linked = {(start.parent / unquote(urlsplit(link).path)).resolve() for link in pages[start].links}
    missing = [path.relative_to(site).as_posix() for path in pages if path.resolve() not in linked and path != start]
    assert not missing, "add these to docs/site.yml"


def test_pages_load_nothing_from_other_servers(pages: dict[Path, Links]) -> None:
    assert pages
    for path, page in pages.items():
        # Each page loads at least its style.
        assert page.loaded and not [address for address in page.loaded if urlsplit(address).netloc], path


def test_versions_stand_beside_each_other(output: Path, site: Path) -> None:
    versions = (output / "versions.json").read_text()
    assert '"0.0.1"' in versions and f'"{site.name}"' in versions
    assert (output / "0.0.1/index.html").read_text() == "old"
    assert f"{site.name}/index.html" in (output / "index.html").read_text()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def address(output: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(output)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.set_default_timeout(60000)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("on_stale", "composites.html"),
        ("storage_mode", "otlp.html"),
        ("verbosity", "reference/exporters/debug.html"),
    ],
)
def test_the_search_finds(words: str, found: str, address: str, site: Path, page: Any) -> None:
    page.goto(f"{address}{site.name}/index.html")
    search = page.locator("input[placeholder='Search']:visible")
    for _ in range(60):
        page.keyboard.press("/")
        try:
            search.wait_for(timeout=1000)
            break
        except NotYet:
            # On a slow machine, the page listens for the key some time after it is loaded.
            continue
    search.fill(words)
    # Results mark the words in the page that they lead to.
    page.wait_for_selector(f"a[href*='{found}?h=']:visible")
