# SPDX-License-Identifier: Apache-2.0

"""The exit codes that the reference lists are those of the commands: each row of its tables has a case that runs.

`SENTENCES` names the cases that show what the sentences of other documents say about exit codes.
"""

import re
from pathlib import Path
from typing import Iterator

import exit_cases as cases
import pytest
from blocks import DOCS
from exit_cases import CASES, Case, Row
from machine import Machine
from test_fragments import DOCUMENTS

ROOT = DOCS.parent
REFERENCE = "docs/reference/commands.md"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    try:
        yield found
    finally:
        found.sending.set()
        found.stop(*found.running)


def rows() -> Iterator[Row]:
    """The rows of the tables in the reference. The table of all codes has none for a code."""
    text = (ROOT / REFERENCE).read_text()
    section = text.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    table = ""
    for line in section.splitlines():
        table = found[1] if (found := re.fullmatch(r"These cases end with (\d+):", line)) else table
        cells = line.strip("| ").split(" | ")
        if line.startswith("| ") and cells[0] not in ("code", "command", "---"):
            assert len(cells) == 2, line
            yield (table, cells[0], cells[1])


ROWS = list(rows())


def name_of(row: Row) -> str:
    return re.sub(r"\W+", "-", " ".join(row)).strip("-")[:60]


def test_each_row_has_a_case() -> None:
    assert len(ROWS) > 25
    assert sorted(ROWS) == sorted(CASES), "write a case for each row, and remove those without one"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_case_of_a_row_ends_with_its_code(row: Row, machine: Machine) -> None:
    CASES[row](machine)


# What documents say in sentences.

SENTENCE = re.compile(r"\bexit(?:s with| with code| codes?)\b|\bthe code 0\b|\bends? with [01]\b|\bas 130\b", re.IGNORECASE)

# The cases that show a sentence, or a test in Rust. None: the sentence only says where codes are.
SENTENCES: dict[tuple[str, str], tuple[Case, ...] | str] = {
    ("docs/README.md", "exit codes, pictures of commands, the support bundle, completion |"): (),
    ("docs/commands.md", "`tidegate run` drains and stops after SIGTERM or SIGINT, with the code 0."): (cases.is_stopped,),
    ("docs/commands.md", "A later one stops at once, with the code 0 too."): (cases.is_stopped_at_once,),
    ("docs/commands.md", "Ctrl-C ends both by SIGINT, which shells show as 130."): (cases.is_ended,),
    (
        "docs/commands.md",
        "`tap`, `composites watch`, `top` and `ring tail` end with 0 when the program behind a pipe has ended, for example `head`.",
    ): (cases.is_not_read,),
    (
        "docs/commands.md",
        "If the output can't be written for another reason, for example to a full disk, a command says so and ends with 1.",
    ): (cases.cannot_be_written,),
    ("docs/composites.md", "`tidegate composites watch` prints the reason and exits with 1."): (cases.is_watched_to_the_end,),
    ("docs/configuration.md", "The exit code is 0 if the configuration can run, 1 otherwise."): (cases.succeeds, cases.has_errors),
    ("docs/configuration.md", "The exit code is 1 if there is an error."): (cases.lacks_something,),
    ("docs/configuration.md", "The exit code is 0 if the configuration has no errors."): (cases.succeeds, cases.has_errors),
    ("docs/configuration.md", "The exit code is 1 if the file can't be read or no pipeline is left."): (cases.converts_nothing,),
    ("docs/configuration.md", "exit code 1, and the names of files that have another layout"): (cases.has_another_layout,),
    (
        "docs/otlp.md",
        "The log has the directory and the number of items (`lost`), and the exit code is 0.",
    ): "tests/it/conservation/disk.rs",
    (
        "docs/processors.md",
        "`tidegate graph --config FILE` checks a configuration as `tidegate validate` does, with the same messages and exit codes.",
    ): (cases.succeeds, cases.has_errors),
    ("docs/queries.md", "With `--fail-empty` the exit code is then 1."): (cases.must_not_be_empty,),
    (
        "docs/testing.md",
        "The exit code is 0 if all tests pass, 1 if one fails or a file can't be read, and 2 for wrong arguments.",
    ): (cases.succeeds, cases.fails_a_test, cases.has_no_tests, cases.is_wrong),
    ("docs/testing.md", "`--run`, `--junit` and the exit codes are the same."): (cases.has_broken_rules,),
    (REFERENCE, "Exit code 0 when the configuration can run, 1 otherwise."): (cases.succeeds, cases.has_errors),
    (REFERENCE, "The exit code is 1 if a test fails."): (cases.fails_a_test,),
    (REFERENCE, "Checks the configuration as `validate` does, with the same exit codes."): (cases.succeeds, cases.has_errors),
    (
        REFERENCE,
        "Exit code 0 when the configuration has no errors, 1 with the list of problems on standard error otherwise.",
    ): (cases.succeeds, cases.has_errors),
    (REFERENCE, "Exit with code 1 if anything was changed or left out"): (cases.converts_a_part,),
    (REFERENCE, "Exit code 0 when at least one pipeline was converted, 1 otherwise."): (cases.converts_nothing, cases.converts_a_part),
    (REFERENCE, "Name the files that have another layout, and exit with code 1 if there are any"): (cases.has_another_layout,),
    (REFERENCE, "Exit code 0 when all files have or get this layout, 1 otherwise."): (cases.has_another_layout, cases.cannot_be_formatted),
    (REFERENCE, "Exit with code 1 if the answer is empty"): (cases.must_not_be_empty,),
    (REFERENCE, "The exit code is 1 if a file can't be read, or if a file that you name is not of NIXL."): (cases.lists_no_ring,),
    (REFERENCE, "The exit code is 1 if the file is not a ring or a store."): (cases.is_no_ring,),
    (REFERENCE, "The exit code is 1 if a part is missing; `missing.txt` says why."): (cases.lacks_a_part,),
}

# Between sentences, in text, in the help of options, in tables and in blocks of code.
ENDS = re.compile(r"(?<=[.:])\s+|\n\s*\n|\n(?:\||```)| {3,}|# ")


def sentences(document: str) -> Iterator[str]:
    """The sentences about exit codes. Those of the tables are rows, and have cases."""
    text = (ROOT / document).read_text()
    if document == REFERENCE:
        text = re.sub(r"(?s)\n## Exit codes\n.*?\n## ", "\n## ", text)
    # Headings say nothing of codes.
    for sentence in ENDS.split(re.sub(r"(?m)^#+ .*$", "", text)):
        if SENTENCE.search(sentence):
            yield re.sub(r"\s+", " ", sentence).strip()


def test_each_sentence_about_exit_codes_has_a_case() -> None:
    found = [(document, sentence) for document in [*DOCUMENTS, REFERENCE] for sentence in sentences(document)]
    assert sorted(found) == sorted(SENTENCES), "name the cases of each sentence, and remove those that are gone"
    for sentence, shown in SENTENCES.items():
        if isinstance(shown, str):
            assert (ROOT / shown).exists(), sentence
        else:
            assert set(shown) <= set(CASES.values()), sentence
