# SPDX-License-Identifier: Apache-2.0

"""The blocks of code of a document, and a run of them: files are written, commands run, and their output compared.

- A block `yaml` whose first line is a comment with a name is that file. `tidegate validate` must accept it. Other blocks of
  `yaml` are parts of a configuration, and must be valid in a complete one.
- A block `python` whose first line is a comment with a name is that file, which a later block may run.
- A block `sh` runs in the directory of the files. The next block, if it is `text`, is its output: numbers but 0 may differ, and
  a line `...` stands for any lines.
- `<!-- background: NAME -->` before a block: it runs until the end, or until `<!-- stop: NAME -->` before another block.
- `not_run.py` lists the blocks that a test can't run, each with its reason. A shell and the programs only parse them.

`test_fragments.py` reads the same blocks in all documents, and two kinds more: `console` has commands after a dollar, with
their output, and each line of `promql` is a query.
"""

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Iterator, NamedTuple

from not_run import NOT_RUN, Table

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from ports import free_port

DOCS = Path(__file__).parents[2] / "docs"

BLOCK = re.compile(
    r"(?m)^(?P<indent> *)(?:<!-- (?P<note>[^>]*) -->\n(?P=indent))?```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL
)

# Code without a language: a line with four spaces after an empty line, or at the start.
INDENTED = re.compile(r"(?m)(?:\A|^\n)    \S.*$")

# A point of a list. Its paragraphs are indented too.
POINT = re.compile(r"(?m)^ *(?:[-*]|\d+\.) ")

# What may differ in output: numbers, and the name of the host.
VARIABLE = re.compile(r"hostname=\"[^\"]*\"|\d+(?:[.,]\d+)*")

# A page may have to wait until a value is there.
SOON = 90.0

# A configuration for the parts that documents show.
BASE = """
receivers: {nop: }
exporters: {nop: }
service: {pipelines: {metrics/base: {receivers: [nop], exporters: [nop]}}}
"""

KINDS = ("receivers", "processors", "exporters", "connectors", "extensions", "service")


class Block(NamedTuple):
    line: int
    note: str
    language: str
    text: str

    def entry(self, document: str, table: Table) -> str | None:
        """What a table says of this block of a document."""
        return next((said for (name, begin), said in table.items() if name == document and self.text.startswith(begin)), None)


def blocks(page: str) -> Iterator[Block]:
    return blocks_of(DOCS / page)


def blocks_of(document: Path) -> Iterator[Block]:
    """The blocks of a document, also those in lists."""
    text = document.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(line, found["note"] or "", found["language"], textwrap.dedent(found["text"]))


def block_of(document: Path, begin: str) -> Block:
    """The only block of a document whose text begins like this."""
    (found,) = (block for block in blocks_of(document) if block.text.startswith(begin))
    return found


def code_without_language(document: Path) -> list[int]:
    """The lines with code that no test can know: indented code, and blocks without a language."""
    text = document.read_text()
    found = [block.line for block in blocks_of(document) if not block.language]
    rest = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for code in INDENTED.finditer(rest):
        # The paragraph before it that is not indented: in a list, indented lines are text.
        begin = [line for line in rest[: code.start()].splitlines() if line and not line.startswith(" ")]
        if not begin or not POINT.match(begin[-1]):
            found.append(rest.count("\n", 0, code.end()) + 1)
    return sorted(found)


def pattern(expected: str) -> re.Pattern[str]:
    """Matches output that has the same words. Numbers but 0, spaces and the name of the host may differ."""
    return re.compile("".join(pattern_of_line(line) for line in expected.splitlines()))


def pattern_of_line(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*"
    words = []
    for word in line.split():
        if word == "0":
            # Nothing is not something.
            words.append("0")
            continue
        kinds = [r"hostname=\"[^\"]*\"" if found[0][0] == "h" else r"\d+(?:[.,]\d+)*" for found in VARIABLE.finditer(word)]
        fixed = [re.escape(piece) for piece in VARIABLE.split(word)]
        words.append(fixed[0] + "".join(kind + piece for kind, piece in zip(kinds, fixed[1:])))
    return r"[ \t]*" + r"[ \t]+".join(words) + r"[ \t]*\n"


def terminate(*processes: subprocess.Popen[bytes]) -> None:
    """Ends processes by SIGTERM. Kills those that still run after 90 s, and fails."""
    for process in processes:
        # A shell that starts the tests in the background has them ignore SIGINT, and so do their programs.
        process.terminate()
    try:
        for process in processes:
            process.wait(timeout=90)
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Page:
    """A run of a document in a directory. Ports are free ones, instead of those of the text."""

    def __init__(self, name: str, directory: Path, binary: str) -> None:
        self.name = name
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir()
        (programs / "tidegate").symlink_to(binary)
        self.work = directory / "work"
        self.work.mkdir()
        self.ports: dict[str, str] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TIDEGATE_ADMIN": self.moved("127.0.0.1:8080"),
        }

    def moved(self, text: str) -> str:
        def other(address: re.Match[str]) -> str:
            return self.ports.setdefault(address[0], f"127.0.0.1:{free_port()}")

        return re.sub(r"127\.0\.0\.1:\d+", other, text)

    def run(self) -> None:
        try:
            asked = None
            for block in blocks(self.name):
                if asked is not None and block.language != "text":
                    self.compare(f"docs/{self.name}", asked, "...")
                asked = self.run_block(block, asked)
            if asked is not None:
                self.compare(f"docs/{self.name}", asked, "...")
        finally:
            self.stop(*self.running)

    def run_block(self, block: Block, asked: str | None) -> str | None:
        """Gives the commands of a block whose output the next block may show."""
        at = f"docs/{self.name}:{block.line}"
        kind, _, name = block.note.partition(": ")
        if block.entry(f"docs/{self.name}", NOT_RUN):
            # `test_commands.py` parses it.
            return None
        text = self.moved(block.text)
        if kind == "stop":
            self.stop(name)
        match block.language, kind:
            case "yaml", _:
                self.check_yaml(at, text)
            case "python", _ if named := re.match(r"# ([\w.-]+\.py)\n", text):
                (self.work / named[1]).write_text(text)
            case "sh", "background":
                self.start(name, text)
            case "sh", _:
                return text
            case "text", _ if asked is not None:
                self.compare(at, asked, text)
            case "text", _:
                # A drawing.
                pass
            case _:
                raise AssertionError(f"{at}: no test knows blocks of `{block.language}`: extend tests/docs/blocks.py")
        return None

    def check_yaml(self, at: str, text: str) -> None:
        named = re.match(r"# ([\w.-]+\.yaml)\n", text)
        if named:
            (self.work / named[1]).write_text(text)
        if named and named[1].endswith(".test.yaml"):
            return
        assert named or text.startswith(KINDS), f"{at}: begin with a section, or with a comment that names a file"
        files = [f"yaml:{text}"] if "service:" in text and "pipelines:" in text else [f"yaml:{BASE}", f"yaml:{text}"]
        command = ["tidegate", "validate", *[word for file in files for word in ("--config", file)]]
        result = self.finished(command)
        assert result.returncode == 0, f"{at}: {result.stdout}{result.stderr}"

    def finished(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=180, check=False
        )

    def start(self, name: str, text: str) -> None:
        command = ["bash", "-c", f"exec {text.strip()}"]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(command, cwd=self.work, env=self.environment, stdout=log, stderr=log)

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.directory.glob("*.log"))

    def stop(self, *names: str) -> None:
        terminate(*[self.running.pop(name) for name in names])

    def compare(self, at: str, command: str, expected: str) -> None:
        """Runs commands until their output is the expected one."""
        end = time.monotonic() + SOON
        first = True
        while True:
            # Only what asks comes again.
            again = "\n".join(line for line in command.splitlines() if first or not line.startswith(("rm ", "sed ")))
            result = self.finished(["bash", "-c", f"set -e\n{again}"])
            first = False
            # Some answers of servers have no end of line.
            shown = re.sub(r"(?<=[^\n])\Z", "\n", result.stdout)
            if result.returncode == 0 and pattern(expected).fullmatch(shown):
                return
            if time.monotonic() > end:
                raise AssertionError(f"{at}: {command}\n{result.stdout}{result.stderr}\nexpected:\n{expected}\n{self.logs()}")
            time.sleep(0.2)
