# SPDX-License-Identifier: Apache-2.0

"""The first minutes of a user: from an empty Debian and one file of the release to the first correct number.

The commands are those of the documents. They run in a root without Rust and without a network, and the time of each way is
printed. The image has a test of its own.
"""

import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from textwrap import dedent

import alone
import kit
import pytest

# Generous bounds, in seconds: for somebody who runs a gateway, for somebody who runs inference engines, and for a developer.
OPERATOR = 3 * 60
PLATFORM = 10 * 60
DEVELOPER = 5 * 60

# Two vLLM servers, at the addresses of the example, with three waiting requests each.
ENGINES = """
import http.server, threading

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b'# TYPE vllm:num_requests_waiting gauge\\nvllm:num_requests_waiting{model_name="llama"} 3\\n')

    def log_message(self, *arguments):
        pass

for port in (8000, 8001):
    threading.Thread(target=http.server.HTTPServer(("127.0.0.1", port), Page).serve_forever).start()
"""
WAITING = '{model_name="llama"}  6'

# The second vendor of the file: it takes each request.
VENDOR = """
import http.server

class Vendor(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 9997), Vendor).serve_forever()
"""

# The parts of curl and grep that the document uses: the root has neither.
CURL = """#!/usr/bin/env python3
import argparse, urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("--silent", action="store_true")
parser.add_argument("--header", action="append", default=[])
parser.add_argument("--data", type=str.encode)
parser.add_argument("url")
asked = parser.parse_args()
headers = dict(header.split(": ", 1) for header in asked.header)
with urllib.request.urlopen(urllib.request.Request(asked.url, asked.data, headers), timeout=60) as answer:
    print(answer.read().decode())
"""
GREP = """#!/usr/bin/env python3
import re, sys

(option, pattern) = sys.argv[1:]
assert option == "-E"
sys.stdout.writelines(line for line in sys.stdin if re.search(pattern, line))
"""

# The gateway answers a moment after its start, so a user asks again.
UNTIL = """
for attempt in $(seq 1000); do
  answer=$({command}) || true
  [ "$answer" = '{expected}' ] && break
  sleep 0.1
done
echo "$answer"
"""


@pytest.fixture(scope="module", autouse=True)
def may_be_alone() -> None:
    if shutil.which("unshare") is None or kit.run(*alone.UNSHARE, "true").returncode != 0:
        kit.can_not_run("only root may make namespaces and change its root")


Measured = Callable[..., None]


class Machine:
    """An empty Debian, with files in the home directory of root."""

    def __init__(self, root: Path, home: Path, mode: str = "ro") -> None:
        self.home = home
        home.mkdir()
        self.launch = (*alone.UNSHARE, sys.executable, alone.__file__, mode, root, home)
        found = self.run("command -v cargo rustc tidegate || true")
        assert found.stdout == "", f"it is not empty: {found}"

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return kit.run(*self.launch, script, timeout=600)

    def has(self, pattern: str, name: str) -> None:
        """Has a file of the release under the name that the documents use."""
        shutil.copy(kit.package(pattern), self.home / name)


@pytest.fixture
def first_number(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Measured:
    """Runs a script on a machine, and compares its lines that a filter leaves. It prints the time, which has a bound."""

    def measured(machine: Machine, script: str, expected: list[str], bound: int, lines: str = ".*") -> None:
        begin = time.monotonic()
        ended = machine.run(script)
        took = time.monotonic() - begin
        shown = [line for line in ended.stdout.splitlines() if re.match(lines, line)]
        assert (ended.returncode, shown) == (0, expected), ended
        with capsys.disabled():
            print(f"\n{request.node.name}: {took:.1f} s from zero to the first number (at most {bound} s)", end=" ")
        assert took < bound

    return measured


def documented(text: str) -> str:
    """Commands of a document, for this processor."""
    return text.replace("x86_64", platform.machine())


def until(command: str, expected: str) -> str:
    return UNTIL.replace("{command}", command).replace("{expected}", expected)


def test_the_deb(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.new_root(tmp_path), tmp_path / "home", "rw")
    machine.has("*.deb", "tidegate.deb")
    (simulate,) = kit.blocks("docs/install.md", "sh", "## The first number of the service")
    (expected,) = kit.blocks("docs/install.md", "text", "## The first number of the service")
    simulation, wait, query = simulate.splitlines()
    assert simulation.endswith(" &") and wait.startswith("sleep ")
    # dpkg is what apt installs with. The next lines are the work of systemd and of the user that starts a container.
    script = f"""
        dpkg --install tidegate.deb >&2
        echo 127.0.0.1 localhost > /etc/hosts
        mkdir --mode=1777 /run/nixl
        setpriv --reuid=tidegate --regid=tidegate --clear-groups tidegate run --config /etc/tidegate/config.yaml &
        {simulation}
        {until(query, expected.strip())}
    """
    first_number(machine, script, expected.splitlines(), OPERATOR)


def test_the_tarball(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_root"), tmp_path / "home")
    machine.has("tidegate-[0-9]*-linux.tar.gz", f"tidegate-{kit.VERSION}-{platform.machine()}-linux.tar.gz")
    (block,) = kit.blocks("docs/install.md", "sh", "## Tarball")
    unpack, enter, quickstart, query, *_ = documented(block).splitlines()
    command, _, remark = query.partition(" #")
    assert "quickstart" in quickstart and ": 8," in remark
    script = f"{unpack}\n{enter}\n{quickstart.partition('#')[0]} >&2 &\n{until(command.strip(), '{}  8')}"
    first_number(machine, script, ["{}  8"], OPERATOR)


def test_the_example_for_inference_engines(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_python"), tmp_path / "home")
    machine.has("tidegate-[0-9]*-linux.tar.gz", f"tidegate-{kit.VERSION}-{platform.machine()}-linux.tar.gz")
    (machine.home / "engines.py").write_text(ENGINES)
    (block,) = kit.blocks("docs/install.md", "sh", "## Tarball")
    unpack, enter, *_ = documented(block).splitlines()
    script = f"""
        python3 engines.py &
        {unpack}
        {enter}
        export HEALTH_ENDPOINT=127.0.0.1:13133 OWN_METRICS_ENDPOINT=127.0.0.1:8888
        ./tidegate run --config examples/autoscaling.yaml >&2 &
        {until("./tidegate query 'sum by (model_name) (queue_depth)'", WAITING)}
    """
    first_number(machine, script, [WAITING], PLATFORM)


def test_the_file_of_a_collector(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_python"), tmp_path / "home")
    machine.has("tidegate-[0-9]*-linux.tar.gz", f"tidegate-{kit.VERSION}-{platform.machine()}-linux.tar.gz")
    # Scrapes add points at times of their own.
    collector = (kit.ROOT / "tests/data/config/convert/otelcol.yaml").read_text()
    (machine.home / "otelcol.yaml").write_text(collector.replace("[otlp, prometheus, ", "[otlp, "))
    (machine.home / "vendor.py").write_text(VENDOR)
    (machine.home / "bin").mkdir()
    for name, program in {"curl": CURL, "grep": GREP}.items():
        (machine.home / "bin" / name).write_text(program)
        (machine.home / "bin" / name).chmod(0o755)
    page = (kit.ROOT / "docs/collector.md").read_text()
    commands = [
        "tidegate config convert otelcol.yaml --with-admin --output gateway.yaml",
        "tidegate run --config sink.yaml",
        "export DATADOG_OTLP_ENDPOINT=http://127.0.0.1:9999",
        "tidegate validate --config gateway.yaml",
        "tidegate run --config gateway.yaml --watch-config",
    ]
    assert all(f"`{command}" in " ".join(page.split()) for command in commands), commands
    convert, sink, name_sink, validate, run = commands
    send, ask, _break = (dedent(block) for block in re.findall(r"(?ms)^   ```sh\n(.*?)^   ```$", page))
    (counts,) = re.findall(r"(?ms)^   ```text\n(.*?)^   ```$", page)
    expected = [line.strip() for line in counts.splitlines()]
    sent = expected[0].replace("otlp.example.com", '127.0.0.1",server_port="9999')
    assert sent != expected[0] and "exporter_sent" in sent
    (sink_yaml,) = [dedent(block) for block in re.findall(r"(?ms)^   ```yaml\n(.*?)^   ```$", page) if "# sink.yaml\n" in block]
    (machine.home / "sink.yaml").write_text(sink_yaml)
    (block,) = kit.blocks("docs/install.md", "sh", "## Tarball")
    unpack, *_ = documented(block).splitlines()
    script = f"""
        python3 vendor.py &
        {unpack}
        export PATH=$PWD/bin:$PWD/tidegate-{kit.VERSION}-{platform.machine()}-linux:$PATH
        {sink} >&2 &
        {name_sink}
        export DD_API_KEY=key GRAFANA_TOKEN=key MIMIR_URL=http://127.0.0.1:9997/api/v1/write
        {convert} >&2
        {validate} >&2
        # The root has no /etc/hosts, and so no localhost.
        {run} --set service.telemetry.metrics.address=127.0.0.1:8888 >&2 &
        {until("tidegate query --endpoint 127.0.0.1:8080 'vector(1)'", "{}  1")}
        {send.rstrip()} >&2
        {until(f"{ask.strip()} | grep -E '^otelcol_exporter_sent.*datadog'", sent)}
        {ask}
    """
    lines = 'otelcol_(receiver_accepted_metric_points{receiver="otlp"|exporter_sent_metric_points{exporter="otlphttp/datadog")'
    first_number(machine, script, [sent, sent, *expected[1:]], OPERATOR, lines)


def test_the_wheel(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_python"), tmp_path / "home")
    install, *_ = kit.blocks("docs/python.md", "sh")
    program, *_ = kit.blocks("docs/python.md", "python", "## The SDK")
    assert install in kit.blocks("docs/install.md", "sh"), "docs/install.md shows another way than docs/python.md"
    (pattern,) = [word for word in install.split() if word.endswith(".whl")]
    name = kit.package("*.whl").name
    assert fnmatch(f"./{name}", pattern), name
    machine.has("*.whl", name)
    (machine.home / "service.py").write_text(program)
    script = f"( {documented(install)} ) >&2\n. venv/bin/activate\npython service.py"
    first_number(machine, script, ["1"], DEVELOPER)


# The scripts of Debian's packages make these links, and did not run.
COMPILERS = "mkdir bin; ln -s /usr/bin/gcc bin/cc; ln -s /usr/bin/g++ bin/c++; PATH=$PWD/bin:$PATH\n"


def test_the_sdk_for_c_and_cpp(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_compilers"), tmp_path / "home")
    in_c, in_cpp, static = kit.blocks("docs/c.md", "sh", "## Install")
    machine.has("tidegate-sdk-*.tar.gz", f"tidegate-sdk-{kit.VERSION}-{platform.machine()}-linux.tar.gz")
    numbers = ["mean 0.8 s", 'service_requests_total{model="llama",status="200"} 3']
    script = COMPILERS + documented(in_c + in_cpp + static)
    first_number(machine, script, numbers * 3, DEVELOPER, "mean |service_requests_total{")


def test_the_sdk_as_the_page_about_installing_shows_it(tmp_path: Path, first_number: Measured) -> None:
    machine = Machine(kit.directory("debian_compilers"), tmp_path / "home")
    (block,) = [block for block in kit.blocks("docs/install.md", "sh") if block.startswith("tar -xf tidegate-sdk-")]
    machine.has("tidegate-sdk-*.tar.gz", f"tidegate-sdk-{kit.VERSION}-{platform.machine()}-linux.tar.gz")
    unpack, rest = documented(block).split("\n", 1)
    program = "cp tidegate-sdk-*/share/doc/tidegate/examples/service.c ."
    numbers = ["mean 0.8 s", 'service_requests_total{model="llama",status="200"} 3']
    first_number(machine, f"{COMPILERS}{unpack}\n{program}\n{rest}", numbers, DEVELOPER, "mean |service_requests_total{")
