# SPDX-License-Identifier: Apache-2.0

"""The length of sentences: CONTRIBUTING.md allows 25 words.

Blocks of code, tables and headings are not sentences. An item of a list begins a new one. A span of code is one word.
"""

import re
from typing import Iterator

import pytest
from blocks import POINT
from commands import without_blocks
from test_fragments import DOCUMENTS, ROOT

# Of CONTRIBUTING.md, "Style of prose and messages".
MOST_WORDS = 25

REFERENCE = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/reference/**/*.md"))

COMMENT = re.compile(r"(?s)<!--.*?-->")

# Lines between paragraphs: empty ones, headings, rows of tables, and lines with only an element of HTML.
BETWEEN = re.compile(r"\s*(?:$|#|\||<[^>]*>$)")

CODE = re.compile(r"(?s)(`+).+?\1")
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")

# A point at the end of a word, also before a quote or a bracket.
END = re.compile(r"(?<=\S)[.!?][\"')*_]*(?:\s+|$)")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs and the items of lists of a document, each with its first line."""
    text = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), without_blocks(text))
    begin, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = re.sub(r"^(\s*> ?)+", "", line)
        is_between = BETWEEN.match(line) is not None
        if lines and (is_between or POINT.match(line)):
            yield begin, "\n".join(lines)
            lines = []
        if not is_between:
            begin = begin if lines else number
            lines.append(POINT.sub("", line))


def plain(text: str) -> str:
    """The words that a reader sees, in as many lines. A span of code is one word."""

    def lines_of(found: re.Match[str], shown: str) -> str:
        return "\n" * (found[0].count("\n") - shown.count("\n")) + shown

    text = CODE.sub(lambda code: lines_of(code, "code"), text)
    text = PICTURE.sub(lambda picture: lines_of(picture, ""), text)
    return LINK.sub(lambda link: lines_of(link, link[1]), text)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a document, each with its first line."""
    for begin, paragraph in paragraphs(text):
        shown, at = plain(paragraph), 0
        for end in [*(found.end() for found in END.finditer(shown)), len(shown)]:
            sentence = shown[at:end]
            if sentence.strip():
                yield begin + shown.count("\n", 0, at), " ".join(sentence.split())
            at = end


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def long_sentences(document: str, text: str) -> list[str]:
    counted = ((line, words(sentence), sentence) for line, sentence in sentences(text))
    return [f"{document}:{line}: {count} words: {sentence}" for line, count, sentence in counted if count > MOST_WORDS]


@pytest.mark.parametrize("document", [*DOCUMENTS, *REFERENCE, "CHANGELOG.md"])
def test_a_sentence_has_at_most_25_words(document: str) -> None:
    assert long_sentences(document, (ROOT / document).read_text()) == []


def test_the_limit_is_that_of_the_page_about_contributing() -> None:
    assert f"at most {MOST_WORDS} words" in (ROOT / "CONTRIBUTING.md").read_text()


# Sentences of 26 words, and the lines where they begin.
LONG = "word " * 25


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"# Heading\n\nShort. {LONG}end.\n", 3),
        (f"Short.\nShort. (Short.) A\n{LONG}.\n", 2),
        (f"- short\n- {LONG}end\n", 2),
        (f"| a | b |\n| --- | --- |\n\n1. short\n\n   {LONG}`a b`\n", 6),
        (f"```sh\ncode\n```\n\n<!-- a\ncomment -->\n> {LONG}[a](https://example.org)\n", 7),
        (f"One `code\nspan`. Two: {LONG}\n", 2),
    ],
)
def test_a_long_sentence_is_found_at_its_line(text: str, line: int) -> None:
    (found,) = long_sentences("a.md", text)
    assert found.startswith(f"a.md:{line}: 2"), found


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG}\n",
        f"{LONG}`a b\nc` - \n"[5:],
        f"- {LONG}\n- {LONG}\n",
        f"{LONG}\n\n{LONG}\n",
        f"# {LONG}end\n",
        f"| {LONG}end |\n",
        f"```text\n{LONG}end.\n```\n",
        f"![{LONG}end](a.svg)\n",
        f"{LONG.strip()}. ({LONG.strip()}.) \"{LONG.strip()}!\" {LONG}",
    ],
)
def test_a_sentence_within_the_limit_is_accepted(text: str) -> None:
    assert long_sentences("a.md", text) == []
