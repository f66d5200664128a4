# SPDX-License-Identifier: Apache-2.0
"""Pages read back: the same families from prometheus_client and from the drop-in."""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import Any

import pytest
from kit import DROP_IN, REAL
from test_exposition import fill

PARSERS = {"classic": "parser", "openmetrics": "openmetrics.parser"}
WRITERS = {"classic": "exposition", "openmetrics": "openmetrics.exposition"}


def read(client: str, which: str, text: str) -> Any:
    """The families as plain values, or None if the text is none of the format."""
    parser = importlib.import_module(f"{client}.{PARSERS[which]}")
    try:
        families = list(parser.text_string_to_metric_families(text))
    except ValueError:
        return None
    return [(one.name, one.type, one.documentation, one.unit, list(map(plain, one.samples))) for one in families]


def plain(sample: Any) -> Any:
    exemplar = sample.exemplar and (*sample.exemplar[:2], repr(sample.exemplar.timestamp))
    native = sample.native_histogram and tuple(map(repr, sample.native_histogram))
    return sample.name, sample.labels, repr(sample.value), repr(sample.timestamp), exemplar, native


@pytest.mark.parametrize("which", PARSERS)
@pytest.mark.parametrize("escaping", ["allow-utf-8", "underscores"])
def test_what_was_written_is_read(client: ModuleType, part: Any, which: str, escaping: str) -> None:
    text = part(WRITERS[which]).generate_latest(fill(client), escaping).decode()
    assert read(DROP_IN, which, text)
    # prometheus_client doesn't read quotes in exemplars, which it writes.
    text = text.replace(r'a\"b\\c\n', "t")
    mine = read(DROP_IN, which, text)
    assert mine is not None and len(mine) > 10 and mine == read(REAL, which, text)

    class Read:
        def collect(self) -> Any:
            return part(PARSERS[which]).text_string_to_metric_families(text)

    again = part(WRITERS[which]).generate_latest(Read(), escaping).decode()
    if which == "openmetrics":  # The classic format writes names that it does not read as they were.
        assert read(DROP_IN, which, again) == mine


def test_native_histograms_are_read(part: Any) -> None:
    core = part("core")
    spans = (core.BucketSpan(0, 2), core.BucketSpan(3, 1))
    native = core.NativeHistogram(9, 1.5, 3, 0.001, 2, spans, None, (1, 2, -1), None)
    metric = core.Metric("nh", "native", "histogram")
    metric.add_sample("nh", {"l": "x"}, 0, None, None, native)

    class Collector:
        def collect(self) -> Any:
            return [metric]

    text = part("openmetrics.exposition").generate_latest(Collector(), version="2.0.0").decode()
    (family,) = part("openmetrics.parser").text_string_to_metric_families(text)
    assert [sample.native_histogram for sample in family.samples] == [native]


def page(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


HISTOGRAM = ("# TYPE a histogram", 'a_bucket{le="1.0"} 1', 'a_bucket{le="+Inf"} 2', "a_count 2", "a_sum 3")

NATIVE = "{count:4,sum:6,schema:3,zero_threshold:1e-39,zero_count:1,positive_spans:[0:1,7:1,4:1],positive_deltas:[1,0,0]}"

#: prometheus_client reads damaged ones as something.
OF_NATIVE = [
    page("# TYPE a histogram", f"a {NATIVE}", "# EOF"),
    page("# TYPE a histogram", f"a{{}} {NATIVE}", f'a{{b="c"}} {NATIVE}', "# EOF"),
    page('# TYPE "a.b" histogram', f'{{"a.b"}} {NATIVE}', f'{{"a.b",c="d"}} {NATIVE}', "# EOF"),
]

#: Pages of OpenMetrics that both take, and that both refuse.
OPENMETRICS = [
    page("# EOF"),
    page("a 1", "# EOF"),
    page("a 1 5", "a 2 6.25", "# EOF"),
    page("a 1 1e3", "# EOF"),
    page("# HELP a b\\n\\\\c\\\"", "# TYPE a counter", "a_total 1 # {} 0.5 3", "a_created 9", "# EOF"),
    page("# TYPE a_s gauge", "# UNIT a_s s", "# HELP a_s ", 'a_s{b="c"} -1', "# EOF"),
    page(*HISTOGRAM, "# EOF"),
    page(*HISTOGRAM[:2], 'a_bucket{le="+Inf"} 2 # {trace="x"} 7 1.5', "# EOF"),
    page("# TYPE a summary", 'a{quantile="0.5"} 3', "a_count 1", "a_sum 3", "# EOF"),
    page("# TYPE a stateset", 'a{a="x"} 1', 'a{a="y"} 0', "# EOF"),
    page("# TYPE a info", 'a_info{b="c"} 1', "# EOF"),
    page("# TYPE a gaugehistogram", 'a_bucket{le="-1.0"} 1', 'a_bucket{le="+Inf"} 2', "a_gcount 2", "a_gsum -3", "# EOF"),
    page('# TYPE "a.b" gauge', '{"a.b"} 1', '{"a.b","c d"="e"} 2', "# EOF"),
    page("# TYPE a counter", "# TYPE b counter", "# EOF"),
    page("a NaN", "# EOF"),
    page("a +Inf", "# EOF"),
]
NO_OPENMETRICS = [
    "",
    page("a 1"),
    page("a 1", "# EOF", "a 2"),
    page("a 1", "", "# EOF"),
    page("a", "# EOF"),
    page("a ", "# EOF"),
    page("a 1 ", "# EOF"),
    page("a 1 x", "# EOF"),
    page("a 1 NaN", "# EOF"),
    page("a 1_0", "# EOF"),
    page("0a 1", "# EOF"),
    page('a{b="c",} 1', "# EOF"),
    page('a{,b="c"} 1', "# EOF"),
    page('a{b="c",b="d"} 1', "# EOF"),
    page('a{__b="c"} 1', "# EOF"),
    page("a{b=c} 1", "# EOF"),
    page('a{b="c} 1', "# EOF"),
    page('a{b="c"', "# EOF"),
    page("# FOO a b", "# EOF"),
    page("# TYPE a", "# EOF"),
    page("# TYPE a untyped", "# EOF"),
    page("# TYPE a gauge", "# TYPE a gauge", "# EOF"),
    page("# HELP a b", "# HELP a b", "# EOF"),
    page("# UNIT a b", "# EOF"),
    page("# HELP a\t", "# EOF"),
    page("# HELP a\tb", "# EOF"),
    page("# TYPE a_b info", "# UNIT a_b b", "# EOF"),
    page("# TYPE a gauge", "a 1", "# HELP a b", "# EOF"),
    page("# TYPE a gauge", "a 1", "# TYPE b gauge", "b 1", "# TYPE a gauge", "# EOF"),
    page("# TYPE a counter", "# TYPE a_total gauge", "# EOF"),
    page("# TYPE a counter", "a_total -1", "# EOF"),
    page("# TYPE a counter", "a_total NaN", "# EOF"),
    page("# TYPE a gauge", "a 1 # {} 1", "# EOF"),
    page("# TYPE a counter", "a_total 1 # {", "# EOF"),
    page("# TYPE a counter", "a_total 1 # {}", "# EOF"),
    page("# TYPE a counter", "a_total 1 # {} 1 ", "# EOF"),
    page("# TYPE a counter", 'a_total 1 # {b="' + "x" * 128 + '"} 1', "# EOF"),
    page(*HISTOGRAM[:2], "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="+Inf"} 2', "a_count 3", "a_sum 1", "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="+Inf"} 2', "a_count 2", "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="+Inf"} 2', "a_sum 2", "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="1"} 3', 'a_bucket{le="+Inf"} 2', "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="2"} 1', 'a_bucket{le="1"} 1', 'a_bucket{le="+Inf"} 2', "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="inf"} 2', "# EOF"),
    page("# TYPE a histogram", "a_bucket 2", "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="+Inf"} 2.5', "# EOF"),
    page("# TYPE a histogram", 'a_bucket{le="-1"} 1', 'a_bucket{le="+Inf"} 2', "a_count 2", "a_sum 1", "# EOF"),
    page("# TYPE a summary", 'a{quantile="2"} 1', "# EOF"),
    page("# TYPE a summary", "a 1", "# EOF"),
    page("# TYPE a summary", 'a{quantile="1"} -1', "# EOF"),
    page("# TYPE a stateset", "a 1", "# EOF"),
    page("# TYPE a stateset", 'a{a="x"} 2', "# EOF"),
    page("# TYPE a info", "a_info 2", "# EOF"),
    page("# TYPE a gauge", 'a{b="1"} 1', 'a{b="2"} 1', 'a{b="1"} 1', "# EOF"),
    page("a 1 2", "a 2 1", "# EOF"),
    page("a 1 2", "a 2", "# EOF"),
]

CLASSIC = [
    "",
    page("a 1"),
    page("# TYPE a counter", "a 1", "a_total 2"),
    page("# TYPE a_total counter", "a_total 2 1500"),
    page("# HELP a b \\\\ \\n \\x", "a 1"),
    page("# TYPE a histogram", 'a_bucket{le="1"} 1', "a_sum 2", "a_max 2"),
    page("# TYPE a gauge", "# HELP b", "a{} 1", "b 2"),
    page("# anything", "#", "# TYPED a b", "a -0x", "b 1")[:22] + "\n",
    page("a\t{ b = \"c\" , }\t2\t3"),
    page('{"a b", c="d"} 1'),
]
NO_CLASSIC = [
    page("a"),
    page("a x"),
    page("0a 1"),
    page("a{b} 1"),
    page("a{b=c} 1"),
    page('a{b="c" d="e"} 1'),
    page('a{b="c",,} 1'),
    page('a{b="c",b="c"} 1'),
    page('a{"b"} 1'),
    page("# TYPE a"),
    page("# TYPE 0a gauge"),
    page("a 1 x"),
]


@pytest.mark.parametrize("text", OPENMETRICS + OF_NATIVE)
def test_openmetrics(text: str) -> None:
    mine = read(DROP_IN, "openmetrics", text)
    assert mine is not None and mine == read(REAL, "openmetrics", text)


@pytest.mark.parametrize("text", NO_OPENMETRICS)
def test_what_is_no_openmetrics(text: str) -> None:
    assert read(DROP_IN, "openmetrics", text) is None
    assert read(REAL, "openmetrics", text) is None


@pytest.mark.parametrize("text", CLASSIC)
def test_classic(text: str) -> None:
    mine = read(DROP_IN, "classic", text)
    assert mine is not None and mine == read(REAL, "classic", text)


@pytest.mark.parametrize("text", NO_CLASSIC)
def test_what_is_no_page(text: str) -> None:
    assert read(DROP_IN, "classic", text) is None
    assert read(REAL, "classic", text) is None


@pytest.mark.parametrize("which", PARSERS)
@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(3)])
def test_damaged_pages(which: str, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    pages = OPENMETRICS if which == "openmetrics" else CLASSIC
    both = 0
    for _ in range(3000):
        text = damaged(chance, chance.choice(pages))
        # Anything but a `ValueError` gets out.
        mine = read(DROP_IN, which, text)
        if mine is None:
            continue
        try:
            theirs = read(REAL, which, text)
        except Exception:  # It has such.
            continue
        if theirs is not None:
            assert mine == theirs, text
            both += 1
    assert both > 100


def damaged(chance: random.Random, text: str) -> str:
    """With lines that are gone or elsewhere, or with a character too many or too few in a line with a sample."""
    lines = text.splitlines(keepends=True)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines) or 1)
        match chance.randrange(4):
            case 0:
                lines[at : at + 1] = []
            case 1:
                chance.shuffle(lines)
            case _ if lines and not lines[at].startswith("#"):
                line, place = lines[at], chance.randrange(len(lines[at]))
                more = chance.choice(["", *'{}",=#\\ 0a_.-+e'])
                lines[at] = line[:place] + more + line[place + (more == "") :]
            case _:
                pass
        lines = [line for line in lines if line]
    return "".join(lines)
