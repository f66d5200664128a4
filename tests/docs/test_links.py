# SPDX-License-Identifier: Apache-2.0

"""The form of links to other sites. `cargo xtask rules` checks those to files, and no test opens an address."""

import re
from urllib.parse import urlsplit

import pytest
from commands import without_blocks
from test_fragments import DOCUMENTS, ROOT

LINK = re.compile(r"\]\((https?://[^)]*)\)|<(https?://[^>]*)>")

# Addresses of the reader's own machine.
LOCAL = ("127.0.0.1", "localhost")


def links(text: str) -> list[str]:
    found = [one or other for one, other in LINK.findall(without_blocks(text))]
    return [link for link in found if urlsplit(link).hostname not in LOCAL]


def problems(link: str) -> list[str]:
    parts = urlsplit(link)
    found = [] if parts.scheme == "https" else ["it is not https"]
    found += ["it has a user, a port or a query"] if parts.username or parts.port or parts.query else []
    found += ["its host is not in lower case"] if parts.netloc != parts.netloc.lower() else []
    found += ["it ends with punctuation, or has a space"] if re.search(r"[.,;:!?'\"*_]$|\s", link) else []
    found += ["its path has `//`, or the name of an index"] if re.search(r"//|/index\.html?$", parts.path) else []
    return [f"{link}: {problem}" for problem in found]


def page_of(link: str) -> str:
    """The same for all spellings of a page."""
    parts = urlsplit(link)
    return f"{(parts.hostname or '').removeprefix('www.')}{parts.path.rstrip('/').removesuffix('.html').lower()}"


def spellings(found: list[str]) -> list[set[str]]:
    """The pages with two spellings, without parts of pages."""
    pages: dict[str, set[str]] = {}
    for link in found:
        pages.setdefault(page_of(link), set()).add(link.partition("#")[0])
    return [each for each in pages.values() if len(each) > 1]


def test_each_link_is_well_formed_and_each_page_has_one_spelling() -> None:
    reference = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/reference/**/*.md")]
    found = [link for document in [*DOCUMENTS, *reference, "CHANGELOG.md"] for link in links((ROOT / document).read_text())]
    assert len(found) >= 40
    assert [problem for link in found for problem in problems(link)] == []
    assert spellings(found) == []


@pytest.mark.parametrize(
    "link",
    [
        "http://example.org/a",
        "https://example.org/a.",
        "https://Example.org",
        "https://example.org/a//b",
        "https://example.org/?utm_source=a",
    ],
)
def test_a_link_of_another_form_is_found(link: str) -> None:
    assert problems(link) != []


def test_two_spellings_of_a_page_are_found() -> None:
    assert spellings(links("[a](https://example.org/a) [b](https://www.example.org/A/#part)\n```sh\n[c](https://a.b)\n```\n")) != []
    assert spellings(links("[a](https://example.org/a/#x) [b](https://example.org/a/)")) == []
