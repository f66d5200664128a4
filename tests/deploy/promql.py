# SPDX-License-Identifier: Apache-2.0

"""The names in a query of PromQL: metrics with the labels that select them and the function around them, and labels of groups."""

import re
from typing import NamedTuple

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[[^\]]*\]|[a-zA-Z_:][\w:]*|\d[\w.]*|[^\s\w]')
NAME = re.compile(r"[a-zA-Z_:][\w:]*")

AGGREGATIONS = {"avg", "bottomk", "count", "count_values", "group", "max", "min", "quantile", "stddev", "stdvar", "sum", "topk"}
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "atan2", "bool", "offset", "inf", "nan"}

# Functions of a range of a counter or of a histogram. They make no sense of a gauge.
RATES = {"increase", "irate", "rate"}


class Selector(NamedTuple):
    metric: str
    labels: frozenset[str]
    # The function whose argument it is.
    function: str


class Query(NamedTuple):
    selectors: list[Selector]
    groups: frozenset[str]
    functions: frozenset[str]


def labels_in(tokens: list[str], at: int, end: str) -> tuple[set[str], int]:
    """The names up to a sign, and what is after it."""
    until = tokens.index(end, at)
    return {token for token in tokens[at:until] if NAME.fullmatch(token)}, until + 1


def parse(text: str) -> Query:
    tokens = TOKEN.findall(text)
    selectors: list[Selector] = []
    groups: set[str] = set()
    functions: set[str] = set()
    around: list[str] = []
    at = 0
    while at < len(tokens):
        token, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        at += 1
        if token == "(":
            around.append("")
        elif token == ")":
            around.pop()
        elif not NAME.fullmatch(token) or token in OPERATORS:
            pass
        elif token in GROUPING:
            found, at = labels_in(tokens, at + 1, ")")
            groups |= found
        elif after == "(" or token in AGGREGATIONS:
            functions.add(token)
            if after == "(":
                around.append(token)
                at += 1
        else:
            labels: set[str] = set()
            if after == "{":
                labels, at = labels_in(tokens, at + 1, "}")
            selectors.append(Selector(token, frozenset(labels), around[-1] if around else ""))
    return Query(selectors, frozenset(groups), frozenset(functions))
