# SPDX-License-Identifier: Apache-2.0

"""A case for each row of the tables of exit codes: it runs commands that end with the code of the table."""

import signal
import socket
from typing import Callable

from blocks import DOCS
from machine import CONFIG, Machine

ROOT = DOCS.parent

# The table by its code, and the two cells.
Row = tuple[str, str, str]

STOPS = (signal.SIGINT, signal.SIGTERM)

# A destination that refuses connections: the drain does not end.
WITHOUT_DESTINATION = """
receivers: {uds: {datagram: {path: statsd.sock}}}
exporters: {otlphttp: {endpoint: "http://127.0.0.1:1"}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  drain_timeout: 10m
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [uds], exporters: [otlphttp]}}
"""

# A plugin that closes all descriptors of the process: those of the async runtime too.
BREAKING = """
receivers: {uds: {datagram: {path: statsd.sock}}}
exporters: {plugin/odd: {name: odd, directories: [.], config: close-all}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [uds], exporters: [plugin/odd]}}
"""

TESTS = """
config: gateway.yaml
tests:
  - name: a mean
    input: [{at: 1s, points: [{name: queue_depth, type: gauge, value: 3}]}]
    expect: [{at: 2s, composite: depth, value: 3}]
"""

RULES = "groups: [{name: g, rules: [{record: up:sum, expr: 'sum(up'}]}]\n"
TESTS_OF_RULES = "rule_files: [rules.yaml]\ntests: [{interval: 1m, promql_expr_test: [{expr: '1', eval_time: 1m}]}]\n"

COLLECTOR = """
receivers: {otlp: {protocols: {http: }}, hostmetrics: {}}
exporters: {debug: }
service: {pipelines: {metrics: {receivers: [otlp, hostmetrics], exporters: [debug]}}}
"""

VENDOR = """
receivers: {otlp: {protocols: {http: }}}
exporters: {datadog: {api: {key: secret}}}
service: {pipelines: {metrics: {receivers: [otlp], exporters: [datadog]}}}
"""

Case = Callable[[Machine], None]

CASES: dict[Row, Case] = {}


def case(table: str, command: str, what: str) -> Callable[[Case], Case]:
    """Notes the case of a row: the code that its table is about, and its cells."""

    def noted(run: Case) -> Case:
        CASES[table, command, what] = run
        return run

    return noted


# The codes.


@case("", "0", "the command did what you asked")
def succeeds(machine: Machine) -> None:
    machine.write("gateway.yaml", CONFIG)
    for command in ("validate", "graph", "config print"):
        machine.ends(f"tidegate {command} --config gateway.yaml", 0)
    machine.write("good.test.yaml", TESTS)
    machine.ends("tidegate test good.test.yaml", 0, "1 passed, 0 failed")
    for command in ("--help", "--version", "version", "man", "completion bash", "config schema", "components"):
        machine.ends(f"tidegate {command}", 0)


@case(
    "",
    "1",
    "the command failed. Standard error has the reason. `test`, `config fmt --check`, `query --json` and `validate --output` have "
    "it on standard output",
)
def fails(machine: Machine) -> None:
    machine.ends("tidegate query up 2>&1 >/dev/null", 1, "Connection refused")
    machine.ends("tidegate top --interval 10ms 2>&1 >/dev/null", 1, "must be at least 100ms")
    machine.ends("tidegate validate --config 'yaml:{}' --output json 2>/dev/null", 1, "no receiver configuration")
    machine.ends("tidegate validate --config 'yaml:{}' --output github 2>/dev/null", 1, "::error")
    machine.ends("tidegate test absent.yaml 2>/dev/null", 1, "No such file")
    machine.write("flat.yaml", "receivers: {nop: }\n")
    machine.gateway()
    machine.ends("tidegate query --json --fail-empty up 2>/dev/null", 1, '"result":[]')


@case(
    "",
    "2",
    "the command line is wrong: an unknown command or option, a missing argument, or a value of a wrong form. Standard error says "
    "which",
)
def is_wrong(machine: Machine) -> None:
    for arguments in ("nosuch", "run --nosuch", "query", "test", "run --config", "completion nosuch", "quickstart --rate x"):
        machine.ends(f"tidegate {arguments} 2>&1 >/dev/null", 2, "error: ")
    machine.ends("tidegate 2>&1 >/dev/null", 2, "Usage: ")


@case("", "130, 143", "SIGINT (Ctrl-C) or SIGTERM has ended the command. A shell shows these codes")
def is_ended(machine: Machine) -> None:
    machine.gateway()
    machine.send()
    for number, code in zip(STOPS, (130, 143)):
        machine.begin("watch", "tidegate composites watch depth", "fresh")
        assert machine.end("watch", number) == code
        machine.begin("tap", "tidegate tap composite", "queue_depth")
        assert machine.end("tap", number) == code


@case("", "134", "the async runtime is broken (SIGABRT). Restart the gateway")
def breaks(machine: Machine) -> None:
    plugin = ROOT / "crates/tidegate-plugin"
    library = "libtidegate_exporter_odd.so"
    machine.ends(f"cc -std=gnu11 -shared -fPIC -I {plugin}/include -o {library} -include string.h {plugin}/tests/odd.c", 0)
    machine.gateway(BREAKING)
    machine.send()
    assert machine.end("gateway") == 134, machine.logs()


# Cases that end with 0.


@case("0", "`run`, `quickstart`", "SIGTERM or SIGINT stops the gateway")
def is_stopped(machine: Machine) -> None:
    for number in STOPS:
        machine.gateway()
        assert machine.end("gateway", number) == 0
        machine.begin("quickstart", "tidegate quickstart --directory .", "last 10 s")
        assert machine.end("quickstart", number) == 0


@case("0", "`run`", "a second signal, more than a second after the first one, ends the drain")
def is_stopped_at_once(machine: Machine) -> None:
    machine.gateway(WITHOUT_DESTINATION)
    machine.send()
    machine.until("the exporter has data", lambda: "Connection refused" in machine.log("gateway"))
    process = machine.running["gateway"]

    def has_ended() -> bool:
        process.terminate()
        return process.poll() is not None

    machine.until("a later signal counts", has_ended)
    assert machine.end("gateway") == 0 and "stopped without draining" in machine.log("gateway")


@case("0", "`top`, `ring tail`, `ring sim`", "SIGINT or SIGTERM ends the command")
def is_interrupted(machine: Machine) -> None:
    machine.gateway()
    for number in STOPS:
        machine.begin("top", "tidegate top", "prometheus")
        assert machine.end("top", number) == 0
        machine.ring()
        machine.begin("tail", "tidegate ring tail rings/rank_0", "Event name")
        assert machine.end("tail", number) == 0
        assert machine.end("agent", number) == 0


@case("0", "`composites watch`, `tap`, `top`, `ring tail`", "the program that reads the output has ended, for example `head`")
def is_not_read(machine: Machine) -> None:
    machine.gateway()
    watched = "composites watch depth --min-interval 100ms"
    # Nothing comes.
    for command in (watched, "tap composite", "top --interval 1h"):
        machine.ends(f"tidegate {command} | true; exit ${{PIPESTATUS[0]}}", 0)
    machine.send()
    machine.ring()
    for command in (watched, "tap composite", "top --interval 100ms", "ring tail rings/rank_0"):
        machine.ends(f"tidegate {command} | head --lines 1; exit ${{PIPESTATUS[0]}}", 0)


@case("0", "`query`", "the answer is empty")
def is_empty(machine: Machine) -> None:
    machine.gateway()
    machine.ends("tidegate query up", 0, "no result")


@case("0", "`ring ls`", "a directory has files of others too")
def lists_files_of_others(machine: Machine) -> None:
    machine.ring()
    machine.write("rings/notes.txt", "text")
    machine.ends("tidegate ring ls rings", 0, "notes.txt")


@case("0", "`ring tail`", "the ring no longer exists")
def follows_a_ring_to_its_end(machine: Machine) -> None:
    machine.ring()
    machine.begin("tail", "tidegate ring tail rings/rank_0", "Event name")
    assert machine.end("agent", signal.SIGTERM) == 0
    (machine.work / "rings/rank_0").unlink(missing_ok=True)
    assert machine.end("tail") == 0 and "the ring no longer exists" in machine.log("tail")


# Cases that end with 1.


@case("1", "every command that prints", "the output can't be written, for example to a full disk")
def cannot_be_written(machine: Machine) -> None:
    machine.gateway()
    machine.send()
    machine.ring()
    watched = "composites watch depth --min-interval 100ms"
    at_once = ("--help", "--version", "version", "man", "completion bash", "components", "query 1", "ring ls rings")
    for command in (*at_once, watched, "tap composite", "top --interval 100ms", "ring tail rings/rank_0"):
        machine.ends(f"tidegate {command} 2>&1 >/dev/full", 1, "tidegate: can't write the output: No space left on device")


@case("1", "`run`, `validate`, `graph`, `config print`", "the configuration has errors, or `--config` is missing")
def has_errors(machine: Machine) -> None:
    machine.write("wrong.yaml", "receivers: {nosuch: }\nexporters: {nop: }\n")
    for command in ("run", "validate", "graph", "config print"):
        machine.ends(f"tidegate {command} --config wrong.yaml 2>&1 >/dev/null", 1, "wrong.yaml:1")
        machine.ends(f"tidegate {command} 2>&1 >/dev/null", 1, "at least one --config must be given")


def with_a_taken_port(machine: Machine, command: str) -> None:
    machine.write("gateway.yaml", CONFIG)
    host, _, port = machine.ports["127.0.0.1:9464"].partition(":")
    with socket.create_server((host, int(port))):
        machine.ends(f"{command} --config gateway.yaml 2>&1 >/dev/null", 1, port)


@case("1", "`run`", "a component can't start")
def cannot_start(machine: Machine) -> None:
    with_a_taken_port(machine, "tidegate run")


@case("1", "`validate --env`", "the machine lacks something that the configuration needs")
def lacks_something(machine: Machine) -> None:
    with_a_taken_port(machine, "tidegate validate --env")


@case("1", "`test`", "a test fails")
def fails_a_test(machine: Machine) -> None:
    machine.write("gateway.yaml", CONFIG)
    machine.write("wrong.test.yaml", TESTS.replace("depth, value: 3", "depth, value: 4"))
    machine.ends("tidegate test wrong.test.yaml", 1, "0 passed, 1 failed")


@case("1", "`test`", "a file is not a file of tests")
def has_no_tests(machine: Machine) -> None:
    machine.write("gateway.yaml", CONFIG)
    machine.ends("tidegate test gateway.yaml", 1, "gateway.yaml:2")
    machine.ends("tidegate test absent.yaml", 1, "No such file")


@case("1", "`test`", "a rule file is broken")
def has_broken_rules(machine: Machine) -> None:
    machine.write("rules.yaml", RULES)
    machine.write("rules.test.yaml", TESTS_OF_RULES)
    machine.ends("tidegate test rules.test.yaml", 1, "parse error")


@case("1", "`test`", "no test has the name of `--run`")
def finds_no_test(machine: Machine) -> None:
    machine.write("gateway.yaml", CONFIG)
    machine.write("good.test.yaml", TESTS)
    machine.ends("tidegate test good.test.yaml --run nosuch", 1, "no test has `nosuch` in its name")


@case("1", "`config convert`", "the file can't be read, or no pipeline is left")
def converts_nothing(machine: Machine) -> None:
    machine.ends("tidegate config convert absent.yaml", 1, "No such file")
    machine.write("otelcol.yaml", COLLECTOR.replace("[otlp, hostmetrics]", "[hostmetrics]"))
    machine.ends("tidegate config convert otelcol.yaml", 1, "nothing could be converted")


@case("1", "`config convert --strict`", "something is changed or left out")
def converts_a_part(machine: Machine) -> None:
    machine.write("otelcol.yaml", COLLECTOR)
    machine.ends("tidegate config convert otelcol.yaml", 0, "hostmetrics")
    machine.ends("tidegate config convert otelcol.yaml --strict", 1, "hostmetrics")
    machine.write("vendor.yaml", VENDOR)
    machine.ends("tidegate config convert vendor.yaml", 0, "otlphttp/datadog")
    machine.ends("tidegate config convert vendor.yaml --strict", 1, "otlphttp/datadog")


@case("1", "`config fmt`", "a file can't be read, or is not valid YAML")
def cannot_be_formatted(machine: Machine) -> None:
    machine.ends("tidegate config fmt absent.yaml", 1, "No such file")
    machine.write("broken.yaml", "receivers: [")
    for option in ("", "--check", "--write"):
        machine.ends(f"tidegate config fmt {option} broken.yaml", 1, "not valid YAML")


@case("1", "`config fmt --check`", "a file has another layout")
def has_another_layout(machine: Machine) -> None:
    machine.write("gateway.yaml", "exporters:\n    nop:\nreceivers:\n    nop:\n")
    machine.ends("tidegate config fmt --check gateway.yaml 2>/dev/null", 1, "gateway.yaml")
    machine.ends("tidegate config fmt --write gateway.yaml", 0)
    machine.ends("tidegate config fmt --check gateway.yaml", 0)


@case("1", "`components`", "the class or the type does not exist")
def has_no_component(machine: Machine) -> None:
    machine.ends("tidegate components nosuch", 1, "`nosuch`")
    for class_of, kind in (("receiver", "nosuch"), ("receivers", "batch")):
        machine.ends(f"tidegate components {class_of} {kind}", 1, f"`{class_of}` has no type `{kind}`")
    machine.ends("tidegate components processor batch", 0, "batch")


@case("1", "`query --fail-empty`", "the answer is empty")
def must_not_be_empty(machine: Machine) -> None:
    machine.gateway()
    machine.ends("tidegate query --fail-empty up", 1, "no result")
    machine.ends("tidegate query --fail-empty 'vector(1)'", 0)


@case("1", "`explain`", "no series matches")
def explains_nothing(machine: Machine) -> None:
    machine.gateway()
    machine.ends("tidegate explain nosuch", 1, "no series matches now")


@case("1", "`cluster status`", "the gateway has no `cluster` extension")
def has_no_cluster(machine: Machine) -> None:
    machine.gateway()
    machine.ends("tidegate cluster status", 1, "has no `cluster` extension")


@case(
    "1",
    "`composites get`",
    "no group has the labels of `--label`. With `--json`, the answer is an empty list, and the code is 0",
)
def has_no_such_group(machine: Machine) -> None:
    machine.gateway()
    machine.send()
    machine.ends("tidegate composites watch depth --events 1", 0, "depth")
    machine.ends("tidegate composites get depth --label model=llama", 1, "no group has model=llama")
    machine.ends("tidegate composites get depth --label model=llama --json", 0, "[]")


@case("1", "`composites watch`", "the gateway ends the stream, before the number of `--events`")
def is_watched_to_the_end(machine: Machine) -> None:
    machine.gateway()
    machine.send()
    machine.ends("tidegate composites watch depth --events 1", 0, "depth")
    machine.begin("watch", "tidegate composites watch depth --events 100000", "fresh")
    # The composite has another name after a reload.
    machine.write("gateway.yaml", CONFIG.replace("name: depth", "name: other"))
    machine.running["gateway"].send_signal(signal.SIGHUP)
    assert machine.end("watch") == 1 and "tidegate: " in machine.log("watch")
    machine.begin("other", "tidegate composites watch other --events 100000", "fresh")
    assert machine.end("gateway", signal.SIGTERM) == 0
    assert machine.end("other") == 1 and "the gateway ended the stream" in machine.log("other")


@case("1", "`tap`", "the gateway can't be reached at first. Later the command connects again")
def taps_no_gateway(machine: Machine) -> None:
    machine.ends("tidegate tap composite", 1, "Connection refused")
    machine.gateway()
    machine.send()
    machine.begin("tap", "tidegate tap composite", "queue_depth")
    assert machine.end("gateway", signal.SIGTERM) == 0
    machine.until("it has lost the gateway", lambda: "connecting again" in machine.log("tap"))
    shown = machine.log("tap").count("queue_depth")
    machine.gateway()
    machine.until("it shows new points", lambda: machine.log("tap").count("queue_depth") > shown)
    assert machine.end("tap", signal.SIGTERM) == 143


@case("1", "`tap`", "the gateway refuses the tap")
def is_refused(machine: Machine) -> None:
    machine.gateway(CONFIG.replace(", tap: true", ""))
    machine.ends("tidegate tap composite", 1, "`tap: true`")


@case("1", "`ring ls`", "a file can't be read, or a file that you name is not of NIXL")
def lists_no_ring(machine: Machine) -> None:
    machine.write("notes.txt", "text")
    for name in ("absent", "notes.txt"):
        machine.ends(f"tidegate ring ls {name}", 1, "one file is not readable, or not of NIXL")


@case("1", "`ring inspect`", "the file is not a ring or a store")
def is_no_ring(machine: Machine) -> None:
    machine.write("notes.txt", "text" * 1000)
    machine.ends("tidegate ring inspect notes.txt", 1, "not a ring")
    machine.ring()
    machine.ends("tidegate ring inspect rings/rank_0", 0, "a ring, version")


@case("1", "`support-bundle`", "a part is missing")
def lacks_a_part(machine: Machine) -> None:
    command = "tidegate support-bundle --metrics 127.0.0.1:8888 --output"
    machine.ends(f"{command} without", 1, "parts are missing: see without/missing.txt")
    machine.gateway()
    machine.ends(f"{command} with", 0, "with")
