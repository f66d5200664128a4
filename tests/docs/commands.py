# SPDX-License-Identifier: Apache-2.0

"""The command lines of documents, and the check that the programs have their commands and options.

The reference has the help of `tidegate`: `test_reference.py` compares it with the build. The source of `xtask` names its
commands.
"""

import functools
import re
import shlex
from pathlib import Path
from typing import Iterator, NamedTuple

ROOT = Path(__file__).parents[2]

# Signs of a shell that end a command.
OPERATORS = {"|", "||", "&", "&&", ";", "(", ")", ">", ">>", "<", "2>"}

# Commands for other programs, without a place in the reference.
HIDDEN = ("help", "plugin-host")

OPTION = re.compile(r"(?m)^ {2,6}(?:(-\w)(?:, )?)?(?:(--[\w-]+)(\.\.\.)?)?(?: (<[^>]+>|\[<[^>]+>\]))?(?:$|  )")


class Command(NamedTuple):
    """What the help says of a command."""

    # The options, and whether each has a value.
    options: dict[str, bool]
    subcommands: frozenset[str]
    # Whether an argument, or a command, must follow.
    is_incomplete: bool
    # The most arguments; nothing if there is no limit.
    most: int | None


@functools.cache
def commands() -> dict[str, Command]:
    """All commands by their words, such as `tidegate ring ls`."""
    text = (ROOT / "docs/reference/commands.md").read_text()
    sections = re.findall(r"(?ms)^## (tidegate[a-z -]*)\n\n```text\n(.*?)^```$", text)
    return {name: described(help_text) for name, help_text in sections}


def described(text: str) -> Command:
    _, _, listed = text.partition("\nOptions:\n")
    options = {name: bool(found[4]) for found in OPTION.finditer(listed) for name in found.groups()[:2] if name}
    _, begin, commands = text.partition("\nCommands:\n")
    names = re.findall(r"(?m)^  ([a-z-]+) ", commands.partition("\n\n")[0]) if begin else []
    usage = text.partition("\nUsage: ")[2].partition("\n\n")[0]
    # Without the values of options that a command must have.
    words_of_usage = re.findall(r"<[A-Z_]+>|\[[A-Z_]+\]", re.sub(r"--[\w-]+ <[^>]+>", "", usage))
    arguments = [word for word in words_of_usage if word[1:-1] not in ("OPTIONS", "COMMAND")]
    needs_one = any(argument.startswith("<") for argument in arguments)
    return Command(options, frozenset(names), needs_one, None if "..." in usage else len(arguments))


def words(line: str) -> list[list[str]]:
    """The simple commands of a line of a shell, each as its words."""
    # Each substitution of a command is a command too.
    inner = [found[1] for found in re.finditer(r"\$\(([^()]*)\)", line)]
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "X", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in OPERATORS:
            found.append([])
        else:
            found[-1].append(word)
    return [each for each in found if each] + [each for text in inner for each in words(text)]


def lines(text: str) -> Iterator[str]:
    """The lines of a script, with the continued ones as one."""
    yield from re.sub(r"\\\n\s*", " ", text).splitlines()


def without_blocks(text: str) -> str:
    """A document without its blocks of code. Its lines have the same numbers."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", lambda block: "\n" * block[0].count("\n"), text)


def inline(text: str) -> Iterator[tuple[int, str]]:
    """The command lines in the sentences of a document, each with its line. Alternatives in brackets are left out."""
    sentences = without_blocks(text)
    for found in re.finditer(r"`((?:\./)?tidegate [^`]+|cargo xtask [^`]+)`", sentences):
        command = re.sub(r"\[.*\]", "", found[1].replace("\n", " ").replace("\\|", "|"))
        yield sentences.count("\n", 0, found.start()) + 1, command


def inline_problems(command: str) -> list[str]:
    return [problem for one in words(command) for problem in problems(one, is_whole=False)]


def script_problems(text: str) -> list[str]:
    """Commands and options of a script that the programs do not have."""
    found = []
    for line in lines(text):
        try:
            each = words(line)
        except ValueError:
            # A quoted text of several lines.
            continue
        for one in each:
            found += problems(one, is_whole=True)
    return found


def problems(line: list[str], *, is_whole: bool) -> list[str]:
    """What is wrong with the words of a command. A command that is not whole may lack arguments."""
    while line and re.fullmatch(r"\w+=.*|exec|env|time|sudo", line[0]):
        line = line[1:]
    if not line:
        return []
    if line[:2] == ["cargo", "xtask"]:
        return xtask_problems(line[2:])
    if line[:2] == ["cargo", "run"] and "--" in line and "-p" not in line and "--bin" not in line and "--example" not in line:
        return tidegate_problems(line[line.index("--") + 1 :], is_whole)
    if re.fullmatch(r"(?:.*/)?tidegate", line[0]):
        return tidegate_problems(line[1:], is_whole)
    return []


def xtask_problems(line: list[str]) -> list[str]:
    known = xtask_commands()
    return [f"`cargo xtask {name}`: no such command" for name in line[:1] if name not in known and name.islower()]


@functools.cache
def xtask_commands() -> frozenset[str]:
    source = (ROOT / "xtask/src/main.rs").read_text()
    return frozenset(re.findall(r'(?m)^\s+name: "([a-z-]+)",$', source))


def tidegate_problems(line: list[str], is_whole: bool) -> list[str]:
    shown = "tidegate"
    at = commands()[shown]
    arguments = 0
    if line[:1] and line[0] in HIDDEN:
        return []
    rest = list(line)
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            if name not in at.options:
                return [f"`{shown}` has no option `{name}`"]
            if at.options[name] and not equals:
                if not rest:
                    return [f"`{shown} {name}` needs a value"]
                rest.pop(0)
        elif word in at.subcommands:
            shown = f"{shown} {word}"
            at = commands()[shown]
            arguments = 0
        elif at.subcommands and word.isupper():
            # A word for any command.
            return []
        elif at.subcommands and word.islower() and not arguments and at.most == 0:
            return [f"`{shown}` has no command `{word}`"]
        else:
            arguments += 1
    if at.most is not None and arguments > at.most:
        return [f"`{shown}` takes {at.most} arguments, not {arguments}"]
    if is_whole and at.is_incomplete and not arguments and "--help" not in line:
        return [f"`{shown}` needs an argument"]
    return []
