#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a JSON Schema from standard input, and YAML files against it.

    check_schema.py FILE...

The schema must be one of draft 2020-12, and every `default` in it must be a value that it accepts. Prints a JSON object: for
each file the list of its errors, and under `schema` the errors of the schema itself.
"""

import json
import sys
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator


def described(error):
    return f"{error.json_path}: {error.message}"


def nodes(schema):
    """The schema and all schemas in it."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


def errors_of_schema(schema):
    metaschema = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    yield from map(described, metaschema.iter_errors(schema))
    root = Draft202012Validator(schema)
    for node in nodes(schema):
        # A property may have the name `default`: its value is a schema.
        if "default" in node and "description" in node:
            for error in root.evolve(schema=node).iter_errors(node["default"]):
                yield f"default of {node['description']!r}: {described(error)}"


def main():
    schema = json.load(sys.stdin)
    validator = Draft202012Validator(schema)
    result = {"schema": list(errors_of_schema(schema))}
    for file in sys.argv[1:]:
        document = yaml.safe_load(Path(file).read_text())
        result[file] = [described(error) for error in validator.iter_errors(document)]
    print(json.dumps(result))


main()
