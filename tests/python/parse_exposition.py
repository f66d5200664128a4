#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parses a /metrics body from standard input with prometheus_client and prints it as JSON.

    parse_exposition.py [text|openmetrics]
    parse_exposition.py serve

Prints a list of families: {"name", "type", "help", "unit", "samples": [{"name", "labels",
"value", "timestamp", "exemplar"}]}. Values that JSON has no number for are the strings NaN, +Inf
and -Inf. The OpenMetrics parser refuses whatever the specification forbids; for text, which the
library takes leniently, this also refuses duplicate families and duplicate series. Exit status 1,
with the reason on standard error, for a body that isn't valid.

With `serve` it reads many bodies, each after a line `FORM BYTES`, and answers each by a line of JSON: the number of
its samples, or as a string why it isn't valid.
"""

import collections
import json
import math
import re
import sys

from prometheus_client import parser as text
from prometheus_client.openmetrics import parser as openmetrics


def number(value):
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def exemplar_of(sample):
    exemplar = sample.exemplar
    if exemplar is None:
        return None
    timestamp = None if exemplar.timestamp is None else float(exemplar.timestamp)
    return {"labels": exemplar.labels, "value": number(exemplar.value), "timestamp": timestamp}


def sample_of(sample):
    return {
        "name": sample.name,
        "labels": sample.labels,
        "value": None if sample.value is None else number(sample.value),
        "timestamp": None if sample.timestamp is None else float(sample.timestamp),
        "exemplar": exemplar_of(sample),
    }


def family_of(family):
    return {
        "name": family.name,
        "type": family.type,
        "help": family.documentation,
        "unit": family.unit,
        "samples": [sample_of(sample) for sample in family.samples],
    }


TYPE_LINE = re.compile(r'^# TYPE ("(?:[^"\\]|\\.)*"|\S+) (\w+)', re.MULTILINE)
PARSERS = {
    "text": text.text_string_to_metric_families,
    "openmetrics": openmetrics.text_string_to_metric_families,
}


def names_on_page(families, declared):
    """The names of the samples as the text has them: the library gives counters the suffix that they may lack."""
    counters = iter([name for name, of_type in declared if of_type == "counter"])
    for family in families:
        # Families come in the order of their TYPE lines.
        has_suffix = family.type != "counter" or next(counters, "").rstrip('"').endswith("_total")
        for sample in family.samples:
            name = sample.name if has_suffix else sample.name.removesuffix("_total")
            yield name, tuple(sorted(sample.labels.items()))


def refuse_duplicates(body, families):
    declared = TYPE_LINE.findall(body)
    series = list(names_on_page(families, declared))
    for what, names in (("family", [name for name, _ in declared]), ("series", series)):
        name, count = next(iter(collections.Counter(names).most_common(1)), (None, 0))
        if count > 1:
            raise ValueError(f"duplicate {what}: {name}")


def parse(form, body):
    """The families of a body, or a ValueError."""
    body = body.decode()
    families = list(PARSERS[form](body))
    refuse_duplicates(body, families)
    return families


def serve():
    for line in sys.stdin.buffer:
        form, length = line.decode().split()
        body = sys.stdin.buffer.read(int(length))
        try:
            answer = sum(len(family.samples) for family in parse(form, body))
        except Exception as error:  # The parsers raise whatever they stumble over.
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


def main():
    form = sys.argv[1] if len(sys.argv) > 1 else "text"
    if form == "serve":
        return serve()
    try:
        families = parse(form, sys.stdin.buffer.read())
    except ValueError as error:
        sys.exit(f"not valid {form}: {error}")
    json.dump([family_of(family) for family in families], sys.stdout)
    print()


if __name__ == "__main__":
    main()
