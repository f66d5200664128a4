# SPDX-License-Identifier: Apache-2.0

"""The commands of documents work, also those of pages that `test_pages.py` does not run whole.

Each block of commands, of output or of Python is run: in a whole page, by a test of this file, or elsewhere. `not_run.py` has
the others, each with its reason.
"""

import contextlib
import functools
import http.server
import json
import os
import pty
import re
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import yaml
from blocks import DOCS, SOON, Block, block_of, blocks_of, pattern, terminate
from commands import lines, words
from guides import Guide
from not_run import ELSEWHERE, NOT_RUN, PYTHON
from test_fragments import DOCUMENTS, commands_of
from test_pages import GUIDES, PAGES

ROOT = DOCS.parent
BINARY = os.environ["TIDEGATE_BINARY"]

# Languages of blocks that run. `test_fragments.py` compiles and checks the others.
RUNNING = ("sh", "console", "text", "json", "python")

# The blocks that tests of this file run, each with the name of its test.
RUN_HERE: dict[tuple[str, str], str] = {}

# Pages that run whole.
WHOLE = {f"docs/{page}" for page in PAGES} | {f"docs/guides/{page}" for page in GUIDES}
WHOLE_ELSEWHERE = {"docs/guides/sdk.md": "tests/dist/test_guide.py"}

# The options of other programs in blocks that no test runs.
OPTIONS = {
    "apt install": "",
    "dnf install": "",
    "docker build": "--file --tag --build-arg",
    "docker compose up": "--file --build",
    "docker run": "--detach --network",
    "helm get values": "--output",
    "helm install": "--namespace --create-namespace --set --values --wait",
    "helm template": "--set-file --show-only",
    "helm upgrade": "--namespace --reset-then-reuse-values --reset-values --set --set-file --values",
    "install": "-m -D",
    "kubectl apply": "--kustomize",
    "kubectl create namespace": "",
    "kubectl create secret generic": "-n --namespace --from-literal",
    "kubectl exec": "--namespace",
    "kubectl get hpa": "--namespace",
    "kubectl label namespace": "",
    "kubectl port-forward": "--namespace",
    "nats stream add": "--subjects --storage --replicas --max-age --dupe-window --defaults",
    "skopeo copy": "",
    "systemctl daemon-reload": "",
    "systemctl enable": "--now",
    "systemctl restart": "",
    "systemctl status": "",
    "systemd-sysusers": "",
    "systemd-tmpfiles": "--create",
}
CHECKED = {name.split()[0] for name in OPTIONS}


def shows(document: str, *begins: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Names the blocks of a document that a test runs, by the first words of each."""

    def noted(test: Callable[..., None]) -> Callable[..., None]:
        for begin in begins:
            RUN_HERE[document, begin] = test.__name__
        test.shown = (document, begins)  # type: ignore[attr-defined]
        return test

    return noted


class Scene(Guide):
    """The machine of a reader: a directory, free ports instead of those of the document, and what runs in the background."""

    def __init__(self, document: str, directory: Path) -> None:
        super().__init__(os.path.relpath(ROOT / document, DOCS), directory, BINARY)
        self.document = document
        self.read: set[str] = set()

    def moved(self, text: str) -> str:
        return super().moved(re.sub(r"\blocalhost:(?=\d)", "127.0.0.1:", text))

    def block(self, begin: str) -> str:
        """The text of the only block that begins like this. A block `console` gives its commands alone."""
        found = block_of(ROOT / self.document, begin)
        self.read.add(begin)
        return self.moved(commands_of(found.text) if found.language == "console" else found.text)

    def output(self, begin: str) -> str:
        """What a block of the language `console` shows below its commands."""
        found = block_of(ROOT / self.document, begin)
        return self.moved("".join(line for line in found.text.splitlines(True) if not line.startswith("$ ")))

    def has(self, sentence: str) -> str:
        """A command in a sentence of the document, moved."""
        text = re.sub(r"\s+", " ", (ROOT / self.document).read_text())
        assert f"`{sentence}`" in text, f"{self.document} has no command `{sentence}`"
        return self.moved(sentence)

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(self.moved(text))

    def ask(self, script: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = self.finished(["bash", "-c", f"set -e\n{script}"])
        assert result.returncode == code, f"{script}\n{result.stdout}{result.stderr}{self.logs()}"
        return result

    def until(self, script: str, expected: str) -> str:
        """Runs commands until they succeed and their output has the expression."""
        end = time.monotonic() + SOON
        while True:
            result = self.finished(["bash", "-c", f"set -e\n{script}"])
            if result.returncode == 0 and re.search(expected, result.stdout):
                return result.stdout
            said = f"{script}\n{result.stdout}{result.stderr}\nexpected: {expected}\n{self.logs()}"
            assert time.monotonic() < end, said
            time.sleep(0.1)

    def until_logged(self, name: str, expected: str) -> str:
        """The log of a program, as soon as it has the expression."""
        return self.until(f"cat {self.directory}/{name}.log", expected)

    def agents(self, directory: str = "/run/nixl", options: str = "--agents 2") -> None:
        """NIXL agents of the reader."""
        self.start("agents", self.moved(f"tidegate ring sim --directory {directory} {options} --rate 50"))

    def gateway(self, name: str = "gateway.yaml") -> None:
        self.start("gateway", f"tidegate run --config {name}")
        self.until("tidegate query 'vector(1)'", "1")


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    document, begins = request.function.shown
    found = Scene(document, tmp_path)
    try:
        yield found
    finally:
        found.stop(*found.running)
    assert found.read == set(begins), "it has not read all blocks that it names"


# How each block runs.


def coverage_of(document: str, block: Block) -> list[str]:
    """Where a block runs, or why it does not."""
    whole = "a page that runs whole" if document in WHOLE | set(WHOLE_ELSEWHERE) else None
    not_run = block.entry(document, NOT_RUN)
    python = PYTHON if block.language == "python" and not whole else None
    here, elsewhere = block.entry(document, RUN_HERE), block.entry(document, ELSEWHERE)
    return [said for said in (None if not_run else whole, not_run, here, elsewhere, python) if said]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_block_runs_or_has_a_reason(document: str) -> None:
    found = [(block.line, coverage_of(document, block)) for block in blocks_of(ROOT / document) if block.language in RUNNING]
    remedy = "nothing runs it: write a test, or a reason into not_run.py"
    assert [f"{document}:{line}: {remedy}" for line, said in found if not said] == []
    assert [f"{document}:{line}: {said}" for line, said in found if len(said) > 1] == []


@pytest.mark.parametrize("table", [NOT_RUN, ELSEWHERE, RUN_HERE], ids=["not_run", "elsewhere", "here"])
def test_the_tables_name_blocks_that_exist(table: dict[tuple[str, str], str]) -> None:
    def places(document: str, begin: str) -> list[int]:
        return [block.line for block in blocks_of(ROOT / document) if block.text.startswith(begin)]

    assert len(table) > 5
    assert [(entry, found) for entry in table if len(found := places(*entry)) != 1] == []


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values(), *WHOLE_ELSEWHERE.values(), PYTHON}))
def test_a_test_elsewhere_names_its_documents(test: str) -> None:
    text = (ROOT / test).read_text()
    documents = {document for (document, _), name in ELSEWHERE.items() if name == test}
    documents |= {document for document, name in WHOLE_ELSEWHERE.items() if name == test}
    documents |= {"docs/python.md"} if test == PYTHON else set()
    assert {document for document in documents if document.removeprefix("docs/") not in text} == set()


NOT_RUN_SCRIPTS = [
    pytest.param(commands_of(block.text) if block.language == "console" else block.text, id=f"{document}:{block.line}")
    for document in DOCUMENTS
    for block in blocks_of(ROOT / document)
    if block.language in ("sh", "console") and block.entry(document, NOT_RUN)
]


@pytest.mark.parametrize("script", NOT_RUN_SCRIPTS)
def test_commands_that_do_not_run_are_well_formed(script: str) -> None:
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert [problem for line in lines(script) for command in words(line) for problem in problems_of(command)] == []


def problems_of(command: list[str]) -> list[str]:
    """What is wrong with the words of a command that does not run here."""
    if "--" in command and command[0] == "kubectl":
        at = command.index("--")
        return problems_of(command[:at]) + problems_of(command[at + 1 :])
    if re.fullmatch(r"(?:.*/)?tidegate", command[0]):
        return parsed(tuple(command[1:]))
    if command[0] not in CHECKED:
        return []
    names = [name for name in OPTIONS if has_in_order(command, name.split())]
    if not names:
        return [f"add `{shlex.join(command)}` to OPTIONS"]
    known = {option for name in names for option in OPTIONS[name].split()}
    given = {word.partition("=")[0] for word in command[1:] if re.match(r"--?[a-z]", word)}
    return [f"`{names[0]}` has no option `{option}`" for option in sorted(given - known)]


def has_in_order(command: list[str], name: list[str]) -> bool:
    """Whether a command has the words of its name. Options may stand between them."""
    rest = iter(command)
    return command[0] == name[0] and all(word in rest for word in name)


@functools.cache
def parsed(arguments: tuple[str, ...]) -> list[str]:
    """What the parser of the binary says of a command line: `--help` at its end keeps the command from running."""
    result = subprocess.run([BINARY, *arguments, "--help"], capture_output=True, text=True, timeout=120, check=False)
    return [] if result.returncode == 0 else [result.stderr]


@pytest.mark.parametrize(
    "script",
    [
        "tidegate composites got a",
        "kubectl --namespace a exec b -- /usr/bin/tidegate cluster state",
        "tidegate query up --endpoints a:1",
        "helm install a b --value c",
        "kubectl --namespace a gets pods",
    ],
)
def test_a_wrong_command_that_does_not_run_is_found(script: str) -> None:
    assert [problem for command in words(script) for problem in problems_of(command)] != []


@pytest.mark.parametrize(
    ("document", "begin", "installed"),
    [
        ("docs/deploy.md", "install -m 755", {"usr/bin/tidegate", "etc/tidegate/config.yaml", "etc/systemd/system/tidegate.service"}),
        ("docs/guides/nixl-bare-metal.md", "install -m 644", {"etc/tidegate/config.yaml", "etc/systemd/system/tidegate.service.d/user.conf"}),
        ("docs/guides/nixl-kubernetes.md", "install -m 644", {"etc/tmpfiles.d/tidegate.conf"}),
    ],
)
def test_files_of_the_system_are_installed(document: str, begin: str, installed: set[str], tmp_path: Path) -> None:
    """Runs the lines that write files, below another root."""
    root = tmp_path / "root"
    for folder in ("usr/bin", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "etc/systemd/system", "etc/tmpfiles.d", "etc/tidegate"):
        (root / folder).mkdir(parents=True)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "config.yaml").write_text("receivers: {}\n")
    (tmp_path / "target/release").mkdir(parents=True)
    (tmp_path / "target/release/tidegate").write_text("the program")
    written = [line for line in block_of(ROOT / document, begin).text.splitlines() if not line.startswith("system")]
    moved = re.sub(r"(?<= )/(?=usr/|etc/)", f"{root}/", "\n".join(written))
    subprocess.run(["bash", "-c", f"set -e\n{moved}"], cwd=tmp_path, check=True)
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert installed <= found and all((root / name).stat().st_size for name in found), found


# README.md


@shows("README.md", "tar -xf")
def test_the_readme_shows_a_demonstration(scene: Scene) -> None:
    commands = scene.block("tar -xf")
    (name,) = re.findall(r"tar -xf (\S+)\.tar\.gz", commands)
    with tarfile.open(scene.work / f"{name}.tar.gz", "w:gz") as archive:
        program = tarfile.TarInfo(f"{name}/tidegate")
        program.type, program.linkname = tarfile.SYMTYPE, BINARY
        archive.addfile(program)
    (scene.directory / "bin/tidegate").unlink()
    first, last = commands.rstrip().rsplit("\n", 1)
    assert last == "tidegate quickstart"
    scene.start("quickstart", f"bash -c '{first}\nexec {last} --directory .'")
    (scene.directory / "bin/tidegate").symlink_to(BINARY)
    said = scene.until_logged("quickstart", "rank_7")
    # It takes other ports where the usual ones are taken.
    (scene.environment["TIDEGATE_ADMIN"],) = re.findall(r"(?m)^http://(127\.0\.0\.1:\d+)/  the page", said)
    scene.until("tidegate query 'count(agent_tx_bytes_total)'", r"^\{\}  8$")
    assert "8 ranks" in said and len(re.findall(r"(?m)^  tidegate (?:top|composites|query)", said)) == 3, said
    scene.stop("quickstart")


@shows("README.md", "tidegate validate")
def test_the_readme_runs_a_configuration(scene: Scene) -> None:
    (config,) = (block.text for block in blocks_of(ROOT / "README.md") if block.language == "yaml")
    # The defaults of these endpoints are ports that others may have.
    for short, long in {
        "grpc: , http: ": 'grpc: {endpoint: "127.0.0.1:4317"}, http: {endpoint: "127.0.0.1:4318"}',
        "health_check: , admin: ": 'health_check: {endpoint: "127.0.0.1:13133"}, admin: {endpoint: "127.0.0.1:8080"}',
        "service:\n": 'service:\n  telemetry: {metrics: {address: "127.0.0.1:8888"}}\n',
    }.items():
        assert short in config
        config = config.replace(short, long)
    scene.write("gateway.yaml", config)
    (scene.work / "run/nixl").mkdir(parents=True)
    validate, graph, run, watch, query = scene.block("tidegate validate").splitlines()
    counts = "1 pipeline, 2 receivers, 3 processors, 1 exporter, 2 extensions"
    assert scene.ask(validate).stdout.startswith(f"gateway.yaml: valid: {counts}")
    assert "pipeline metrics\n  receivers   nixl, otlp\n" in scene.ask(graph).stdout
    scene.start("gateway", run)
    # Without agents, the composite is `absent` and the query is empty.
    scene.until("tidegate composites get nixl_xfer_time_avg_10s", "absent")
    assert scene.ask(query).stdout == ""
    scene.start("watch", watch.partition("#")[0])
    scene.agents()
    scene.until(query, r"^\{\}  \d")
    scene.until_logged("watch", r"nixl_xfer_time_avg_10s.*fresh")
    scene.until(scene.moved("curl --silent localhost:8080/api/v1/composites"), '"name":"nixl_xfer_time_avg_10s"')


# docs/collector.md


class Vendor(http.server.BaseHTTPRequestHandler):
    """Takes each request, and remembers it."""

    taken: list[tuple[str, bytes]] = []

    def do_POST(self) -> None:
        self.taken.append((self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def vendor() -> Iterator[str]:
    Vendor.taken.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Vendor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


COLLECTOR = """
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:4317"}, http: {endpoint: "127.0.0.1:4318"}}}
  hostmetrics: {scrapers: {cpu: }}
processors: {batch: {timeout: 200ms}, memory_limiter: {check_interval: 1s, limit_mib: 512}}
exporters: {datadog: {api: {key: "${env:DD_API_KEY}"}}}
service:
  telemetry: {metrics: {level: detailed, readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: OWN}}}}]}}
  pipelines: {metrics: {receivers: [otlp, hostmetrics], processors: [memory_limiter, batch], exporters: [datadog]}}
"""


@shows(
    "docs/collector.md",
    "# sink.yaml",
    "# gateway.test.yaml",
    "point=",
    "curl --silent http",
    "otelcol_exporter_sent",
    "cp gateway.yaml",
)
def test_the_first_half_hour_with_the_file_of_a_collector(scene: Scene) -> None:
    own = scene.moved("127.0.0.1:8888").partition(":")[2]
    scene.write("otelcol.yaml", COLLECTOR.replace("OWN", own))
    left_out = scene.ask(scene.has("tidegate config convert otelcol.yaml --with-admin --output gateway.yaml")).stderr
    assert "receivers::hostmetrics" in left_out and "DATADOG_OTLP_ENDPOINT" in left_out, left_out
    gateway = scene.work / "gateway.yaml"
    assert "tap: true" in gateway.read_text() and "127.0.0.1:8080" in gateway.read_text()
    gateway.write_text(gateway.read_text().replace("127.0.0.1:8080", scene.moved("127.0.0.1:8080")))
    variables = scene.ask(scene.has(r"grep --only-matching '\${env:[^}]*}' gateway.yaml")).stdout.split()
    assert set(variables) == {"${env:DD_API_KEY}", "${env:DATADOG_OTLP_ENDPOINT}"}
    (scene.work / "sink.yaml").write_text(scene.block("# sink.yaml"))
    scene.start("sink", scene.has("tidegate run --config sink.yaml"))
    endpoint = scene.has("export DATADOG_OTLP_ENDPOINT=http://127.0.0.1:9999").partition("=")[2]
    scene.environment |= {"DD_API_KEY": "key", "DATADOG_OTLP_ENDPOINT": endpoint}
    scene.ask(scene.has("tidegate validate --config gateway.yaml --env"))
    # A Collector has the port: another address is free.
    taken = scene.moved("127.0.0.1:4318")
    with socket.create_server(("127.0.0.1", int(taken.partition(":")[2]))):
        assert "listens there" in scene.ask("tidegate validate --config gateway.yaml --env", code=1).stderr
        option = scene.has("--set receivers.otlp.protocols.http.endpoint=127.0.0.1:4328")
        scene.ask(f"tidegate validate --config gateway.yaml --env {option}")
    others = [
        scene.has("--set receivers.otlp.protocols.grpc.endpoint=127.0.0.1:4327"),
        scene.has("--set extensions.admin.endpoint=127.0.0.1:9081"),
        scene.has("--set service.telemetry.metrics.address=127.0.0.1:8889"),
    ]
    scene.ask(f"tidegate validate --config gateway.yaml --env {' '.join(others)}")
    assert scene.has("export TIDEGATE_ADMIN=127.0.0.1:9081").partition("=")[2] in others[1]
    scene.write("gateway.test.yaml", scene.block("# gateway.test.yaml"))
    assert "1 passed, 0 failed" in scene.ask(scene.has("tidegate test gateway.test.yaml")).stdout
    scene.start("gateway", scene.has("tidegate run --config gateway.yaml --watch-config"))
    scene.until("tidegate top --once --interval 100ms", "otlphttp/datadog")
    scene.start("tap", scene.has("tidegate tap exporters::otlphttp/datadog --limit 5"))
    scene.until(scene.block("point="), r"^\{\}$|^\{\"partialSuccess\":\{\}\}$")
    # `https` has a usual port, which the label leaves out.
    sink = '127.0.0.1",server_port="{}'.format(endpoint.rpartition(":")[2])
    counted = scene.block("otelcol_exporter_sent").replace("otlp.example.com", sink)
    scene.compare_exactly("docs/collector.md", scene.block("curl --silent http"), counted)
    scene.until_logged("sink", "debug: 1 metric_points")
    break_and_mend(scene)


def break_and_mend(scene: Scene) -> None:
    """The items wait at a wrong endpoint, and leave at the right one."""
    scene.ask(scene.block("cp gateway.yaml"))
    scene.until_logged("gateway", "the new configuration runs")
    scene.ask(scene.block("point="))
    scene.until("tidegate top --once --interval 100ms", r"exporter otlphttp/datadog +\d+ +\d+ +\d+ +[1-9]")
    scene.until_logged("gateway", "sending failed, will retry")
    scene.ask(scene.has("cp good.yaml gateway.yaml"))
    scene.until_logged("gateway", "handed_over")
    scene.until("tidegate top --once --interval 100ms", r"exporter otlphttp/datadog +\d+ +\d+ +\d+ +0 ")
    scene.until_logged("sink", r"(?s)debug: 1 metric_points\n.*debug: 1 metric_points\n")


def test_the_values_make_the_default_of_the_official_chart_valid(tmp_path: Path) -> None:
    values = yaml.safe_load(block_of(ROOT / "docs/collector.md", "config:").text)
    default = yaml.safe_load((ROOT / "tests/data/config/collector/chart_gateway.yaml").read_text())
    (tmp_path / "relay.yaml").write_text(yaml.safe_dump(default))
    assert validated(tmp_path / "relay.yaml").returncode == 1
    (tmp_path / "relay.yaml").write_text(yaml.safe_dump(merged(default, values["config"])))
    result = validated(tmp_path / "relay.yaml")
    assert result.returncode == 0, result.stderr


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merges as Helm does: null removes a key."""
    for key, value in new.items():
        both = isinstance(value, dict) and isinstance(old.get(key), dict)
        old[key] = merged(old[key], value) if both else value
    return {key: value for key, value in old.items() if new.get(key, 0) is not None}


def validated(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, "validate", "--config", file], capture_output=True, text=True, timeout=120, check=False)


# docs/commands.md


@shows("docs/commands.md", "http://127.0.0.1:8080/")
def test_the_demonstration_shows_its_view_on_a_terminal(scene: Scene) -> None:
    expected = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", scene.block("http://127.0.0.1:8080/"))
    # In the document, this port is taken. Here, another process may have it.
    with socket.socket() as other:
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", 4317))
            other.listen()
        said = on_terminal(scene, ["tidegate", "quickstart", "--directory", "."], "rank_0 .* fresh")
    said = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", said)
    for line in expected.splitlines():
        # The numbers of ranks differ, and the directory of rings.
        begin = line.split()[0] if "rings" in line or line.startswith("rank_") else line.partition("  (")[0]
        assert begin in said, f"no {begin!r} in:\n{said}"
    assert "  (4317 is taken)" in said, said


def on_terminal(scene: Scene, command: list[str], expected: str) -> str:
    """The text that a command writes to a terminal of 80 columns, until it has the expression. Then a signal ends it."""
    above, below = pty.openpty()
    environment = scene.environment | {"TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(command, cwd=scene.work, env=environment, stdin=below, stdout=below, stderr=below)
    os.close(below)
    text, deadline = "", time.monotonic() + SOON
    try:
        while not re.search(expected, text):
            assert time.monotonic() < deadline and process.poll() is None, text
            if select.select([above], [], [], 0.2)[0]:
                text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(above, 1 << 16).decode(errors="replace"))
        return text
    finally:
        process.terminate()
        # It may still write. An error says that nothing has the terminal any more.
        with contextlib.suppress(OSError):
            while process.poll() is None and time.monotonic() < deadline + SOON:
                if select.select([above], [], [], 0.1)[0]:
                    os.read(above, 1 << 16)
        terminate(process)
        os.close(above)


GATEWAY = """
receivers: {nixl: {directories: [/run/nixl], hostname: vm}}
processors:
  composite: {composites: [{name: nixl_xfer_time_avg_10s, metric: agent_xfer_time, function: avg, by: [agent_name]}]}
  aggregate: {rules: nixl}
  attributes: {actions: [{key: cluster, value: a, action: insert}]}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}, nop: }
extensions: {admin: {endpoint: "127.0.0.1:8080", tap: true}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines:
    metrics: {receivers: [nixl], processors: [composite, aggregate], exporters: [prometheus]}
    metrics/raw: {receivers: [nixl], processors: [attributes], exporters: [nop]}
"""


@shows("docs/commands.md", "$ tidegate support-bundle")
def test_a_support_bundle_has_the_files_of_the_table(scene: Scene) -> None:
    scene.write("gateway.yaml", GATEWAY)
    (scene.work / "run/nixl").mkdir(parents=True)
    scene.gateway()
    shown = scene.ask(scene.block("$ tidegate support-bundle")).stdout
    # The name is the time.
    form = re.compile(re.sub(r"\d+", lambda digits: rf"\d{{{len(digits[0])}}}", scene.output("$ tidegate support-bundle")))
    assert form.fullmatch(shown), shown
    text = (ROOT / "docs/commands.md").read_text().partition("\n## Support bundle\n")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"(?m)^\| (`.+?`) \|", text) for name in re.findall(r"`([^`]+)`", row)}
    found = {path.name for path in (scene.work / shown.strip()).iterdir()}
    # A part that a gateway does not have is in `missing.txt`.
    missing = (scene.work / shown.strip() / "missing.txt").read_text() if "missing.txt" in found else ""
    assert found <= named, found - named
    assert {name for name in named - found if name != "missing.txt" and name.partition(".")[0] not in missing} == set(), missing


# docs/composites.md

HOOK = """
receivers: {nixl: {directories: [/run/nixl]}, uds: {datagram: {path: statsd.sock}}}
processors:
  composite:
    composites:
      - {name: ttft_p99_10s, metric: agent_xfer_time, function: quantile, quantile: 0.99, quantiles: [0.5], by: [agent_name]}
      - name: queue_depth
        metric: queue
        function: last
        across: sum
        thresholds: [{name: starved, below: 1, webhook: {endpoint: "http://VENDOR/hooks/starved"}}]
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [nixl, uds], processors: [composite], exporters: [prometheus]}}
"""


@shows("docs/composites.md", '[{"name"', '{"composite"')
def test_composites_and_webhooks_have_the_documented_fields(scene: Scene, vendor: str) -> None:
    scene.ports[vendor] = vendor
    (entry,), hook = (json.loads(scene.block(begin)) for begin in ('[{"name"', '{"composite"'))
    scene.write("gateway.yaml", HOOK.replace("VENDOR", vendor))
    scene.agents()
    scene.gateway()
    scene.until("tidegate composites get ttft_p99_10s", "fresh")
    shown = json.loads(scene.until(scene.moved("curl --silent http://127.0.0.1:8080/api/v1/composites"), "ttft_p99_10s"))
    (first, *_) = (one for one in shown if one["name"] == "ttft_p99_10s")
    assert first.keys() == entry.keys() and first["quantiles"].keys() == entry["quantiles"].keys(), first
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"queue:5|g", str(scene.work / "statsd.sock"))
        scene.until("tidegate composites get queue_depth", "fresh")
        sender.sendto(b"queue:0|g", str(scene.work / "statsd.sock"))
    end = time.monotonic() + SOON
    while not (sent := [json.loads(body) for path, body in Vendor.taken if path == "/hooks/starved"]):
        assert time.monotonic() < end, scene.logs()
        time.sleep(0.05)
    assert sent[0].keys() == hook.keys(), sent
    # The document shows a part of the entry. Only a quantile has a rank.
    assert sent[0]["shown"].keys() | {"quantile"} == entry.keys() >= hook["shown"].keys(), sent


# docs/configuration.md


@shows("docs/configuration.md", "$ tidegate validate --config gateway.yaml\n")
def test_a_valid_configuration_has_one_line(scene: Scene) -> None:
    config = """
receivers: {otlp: {protocols: {http: }}, nop: , uds: {datagram: {path: /run/tidegate/statsd.sock}}}
processors: {aggregate: {rules: [{match: {name: "*"}}]}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}, debug: }
service:
  pipelines:
    metrics: {receivers: [otlp, uds], processors: [aggregate], exporters: [prometheus]}
    traces: {receivers: [otlp, nop], exporters: [debug]}
"""
    scene.write("gateway.yaml", config)
    result = scene.ask(scene.block("$ tidegate validate --config gateway.yaml\n"))
    assert result.stdout == scene.output("$ tidegate validate --config gateway.yaml\n")


@shows("docs/configuration.md", "$ tidegate validate --config gateway.yaml --env")
def test_problems_of_a_machine_name_the_process(scene: Scene) -> None:
    port = scene.moved("127.0.0.1:9464").partition(":")[2]
    # The line and the column are those of the document.
    config = f"""receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:4318"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: "*"}}}}]}}
# The page of all series.

exporters:
  prometheus: {{endpoint: "0.0.0.0:{port}"}}
service:
  telemetry: {{metrics: {{address: "127.0.0.1:8888"}}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}}}
"""
    scene.write("gateway.yaml", config)
    # The name of a process is that of its program.
    (scene.directory / "bin/nginx").symlink_to(sys.executable)
    listen = f"import socket, time; s = socket.create_server(('0.0.0.0', {port})); time.sleep(600)"
    scene.start("nginx", f'nginx -c "{listen}"')
    command = scene.block("$ tidegate validate --config gateway.yaml --env")
    scene.until(f"{command.strip()} 2>&1 || true", "listens there")
    result = scene.ask(command, code=1)
    expected = scene.output("$ tidegate validate --config gateway.yaml --env")
    # The line below the number marks the endpoint, which may be shorter.
    form = pattern(re.sub(r"\^+", "^", expected).replace('"0.0.0.0:9464"', f'"0.0.0.0:{port}"'))
    orders = [result.stdout + result.stderr, result.stderr + result.stdout]
    assert any(form.fullmatch(re.sub(r"\^+", "^", said)) for said in orders), orders[0]


PARTS = {
    "base.yaml": "receivers: {nop: }\nexporters: {debug: }\nservice: {pipelines: {logs: {receivers: [nop], exporters: [debug]}}}\n",
    "node.yaml": "exporters: {debug: {verbosity: detailed}}\n",
    "gateway.yaml": "receivers: {nop: }\nexporters: {nop: }\nservice: {pipelines: {logs: {receivers: [nop], exporters: [nop]}}}\n",
}


@shows("docs/configuration.md", "tidegate config print")
def test_the_effective_configuration_is_printed(scene: Scene) -> None:
    for name, text in PARTS.items():
        scene.write(name, text)
    merged, pipelines = scene.block("tidegate config print").splitlines()
    shown = scene.ask(merged).stdout
    assert re.search(r"verbosity: detailed", shown) and re.search(r"level: debug", shown), shown
    assert json.loads(scene.ask(pipelines).stdout) == {"logs": {"exporters": ["nop"], "receivers": ["nop"]}}


def test_a_workflow_checks_a_configuration() -> None:
    steps = yaml.safe_load(block_of(ROOT / "docs/configuration.md", "- run:").text)
    assert [problem for step in steps for problem in problems_of(shlex.split(step["run"]))] == []


@shows("docs/configuration.md", "tidegate config schema")
def test_the_schema_for_editors_is_one(scene: Scene) -> None:
    scene.ask(scene.block("tidegate config schema"))
    schema = json.loads((scene.work / "tidegate.schema.json").read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema" and "receivers" in schema["properties"]


CONVERTED = ROOT / "tests/data/config/convert"


@shows("docs/configuration.md", "tidegate config convert", "otelcol.yaml:24")
def test_files_of_other_programs_are_converted(scene: Scene) -> None:
    for file in CONVERTED.iterdir():
        shutil.copy(file, scene.work)
    (scene.work / "scrape.yml").write_text('scrape_configs: [{job_name: own, static_configs: [{targets: ["127.0.0.1:1"]}]}]\n')
    collector, prometheus, vmagent = scene.block("tidegate config convert").splitlines()
    said = scene.ask(collector).stderr
    assert pattern(scene.block("otelcol.yaml:24")).fullmatch(said), said
    variables = re.findall(r"\$\{env:(\w+)\}", (scene.work / "gateway.yaml").read_text())
    scene.environment |= {name: "https://example.com" for name in variables}
    scene.ask("tidegate validate --config gateway.yaml")
    scene.ask(prometheus)
    scene.ask("tidegate validate --config scraping.yaml")
    written = (scene.work / "scraping.yaml").read_text()
    assert "scraping.yaml exists: remove it" in scene.ask(prometheus, code=1).stderr
    assert (scene.work / "scraping.yaml").read_text() == written
    assert "http://vm:8428/api/v1/write" in scene.ask(vmagent).stdout


@shows("docs/configuration.md", "tidegate config fmt")
def test_files_get_a_canonical_layout(scene: Scene) -> None:
    pipelines = "service: {pipelines: {logs: {receivers: [nop], exporters: [nop]}}}\n"
    scene.write("gateway.yaml", f"{pipelines}exporters: {{nop: }}\nreceivers: {{nop: }}\n")
    show, write, check = scene.block("tidegate config fmt").splitlines()
    shown = scene.ask(show).stdout
    assert re.findall(r"(?m)^\w+", shown) == ["receivers", "exporters", "service"]
    assert "gateway.yaml" in scene.ask(check, code=1).stdout
    scene.ask(write)
    assert (scene.work / "gateway.yaml").read_text() == shown and scene.ask(check).stdout == ""


# docs/dashboards.md


@shows("docs/dashboards.md", "promtool test rules")
def test_the_alerts_have_tests_that_pass(scene: Scene) -> None:
    (scene.work / "deploy").symlink_to(ROOT / "deploy")
    (scene.directory / "bin/promtool").symlink_to(os.environ["TIDEGATE_PROMTOOL"])
    promtool, own = scene.block("promtool test rules").splitlines()
    assert "SUCCESS" in scene.ask(f"{promtool} 2>&1").stdout
    assert re.search(r"(?m)^\d+ passed, 0 failed$", scene.ask(own).stdout)


# docs/install.md


@shows("docs/install.md", "sha256sum")
def test_checksums_of_downloaded_files_are_compared(scene: Scene) -> None:
    scene.write("tidegate_0.1.0_amd64.deb", "package")
    scene.ask("sha256sum tidegate_0.1.0_amd64.deb > SHA256SUMS; echo other > other; sha256sum other >> SHA256SUMS; rm other")
    assert scene.ask(scene.block("sha256sum")).stdout == "tidegate_0.1.0_amd64.deb: OK\n"
    scene.write("tidegate_0.1.0_amd64.deb", "another package")
    scene.ask(scene.block("sha256sum"), code=1)


# A directory of builds beside those of the workspace. It stays for the next run, and tests/dist builds there too.
PROGRAMS = Path(BINARY).parents[1] / "docs-programs"

# The crates that the program needs are built in a few minutes.
BUILD_SECONDS = 1800


def with_cargo(scene: Scene) -> None:
    """An archive with the workspace, and cargo without the network: the build of the gateway has fetched the crates.

    The archive of a release has a part of the workspace: tests/dist runs the program of docs/sdk.md with it.
    """
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    with tarfile.open(scene.work / f"tidegate-{version}.tar.gz", "w:gz") as archive:
        directory = tarfile.TarInfo(f"tidegate-{version}")
        directory.type, directory.linkname = tarfile.SYMTYPE, str(ROOT)
        archive.addfile(directory)
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    scene.environment |= {"CARGO_NET_OFFLINE": "true", "CARGO_TARGET_DIR": str(PROGRAMS)}
    scene.environment.setdefault("RUSTUP_TOOLCHAIN", channel)


@shows("docs/install.md", "tar -xf tidegate-0.1.0.tar.gz")
def test_a_program_in_rust_gets_the_crate(scene: Scene) -> None:
    with_cargo(scene)
    scene.ask(scene.block("tar -xf tidegate-0.1.0.tar.gz"))
    manifest = tomllib.loads((scene.work / "service/Cargo.toml").read_text())
    assert list(manifest["dependencies"]) == ["tidegate-metrics"]


# docs/nixl.md


@shows("docs/nixl.md", "tidegate ring ls")
def test_rings_are_shown_by_hand(scene: Scene) -> None:
    scene.agents(options="--agents 2 --prefix rank_")
    commands = (line.partition("#")[0].strip() for line in scene.block("tidegate ring ls").splitlines())
    listed, inspected, followed, simulated = commands
    scene.until(listed, r"(?s)(?=.*rank_0).*rank_1")
    assert "ring" in scene.ask(inspected).stdout.splitlines()[0]
    scene.start("tail", followed)
    scene.until_logged("tail", "agent_")
    assert "--agents" in scene.ask(simulated).stdout


# docs/plugins.md


@shows("docs/plugins.md", "cc -std=c11", "tidegate validate")
def test_a_plugin_is_built_and_used(scene: Scene) -> None:
    (scene.work / "crates").symlink_to(ROOT / "crates")
    source, *_ = (block.text for block in blocks_of(ROOT / "docs/plugins.md") if block.language == "c")
    (part,) = (block.text for block in blocks_of(ROOT / "docs/plugins.md") if block.language == "yaml")
    (scene.work / "hello.c").write_text(source)
    scene.ask(scene.block("cc -std=c11"))
    rest = """
receivers: {uds: {datagram: {path: statsd.sock}}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines: {metrics: {receivers: [uds], exporters: [plugin/hello]}}
"""
    scene.write("gateway.yaml", part.replace("/home/me/plugins", str(scene.work)) + rest)
    validate, run = scene.block("tidegate validate").splitlines()
    assert ": valid: " in scene.ask(validate.partition("#")[0]).stdout
    scene.start("gateway", run)
    scene.until("tidegate query 'vector(1)'", "1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"greeting:1|c", str(scene.work / "statsd.sock"))
    scene.until_logged("gateway", "greeting")


# docs/processors.md


@shows("docs/processors.md", "tidegate graph")
def test_pipelines_are_shown_as_text(scene: Scene) -> None:
    (scene.work / "config").symlink_to(ROOT / "config")
    expected = block_of(ROOT / "docs/processors.md", "pipeline metrics/raw").text
    assert scene.ask(scene.block("tidegate graph")).stdout == expected


# docs/prometheus.md

CLASH = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:4318"}}}, uds: {datagram: {path: statsd.sock}}}
processors: {aggregate: {rules: [{match: {name: "*"}, without: []}]}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464", add_metric_suffixes: false}}
extensions: {admin: {endpoint: "127.0.0.1:8080"}}
service:
  extensions: [admin]
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
  pipelines:
    metrics/a: {receivers: [uds], processors: [aggregate], exporters: [prometheus]}
    metrics/b: {receivers: [otlp], processors: [aggregate], exporters: [prometheus]}
"""


@shows("docs/prometheus.md", "$ curl -s localhost:9464/debug")
def test_omitted_series_have_a_reason(scene: Scene) -> None:
    scene.write("gateway.yaml", CLASH)
    scene.gateway()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"queue_depth:1|c", str(scene.work / "statsd.sock"))
    scene.until("tidegate query '{__name__=~\"queue_depth.*\"}'", "queue_depth")
    point = '{"asDouble": 1, "timeUnixNano": "\'$(date +%s%N)\'"}'
    metric = '{"name": "queue.depth", "gauge": {"dataPoints": [' + point + "]}}"
    body = '{"resourceMetrics": [{"scopeMetrics": [{"metrics": [' + metric + "]}]}]}"
    kind = "--header 'Content-Type: application/json'"
    scene.ask(scene.moved(f"curl --silent --fail {kind} --data '{body}' http://127.0.0.1:4318/v1/metrics"))
    command = scene.block("$ curl -s localhost:9464/debug")
    answer = json.loads(scene.until(command, "queue.depth"))
    (first,) = answer["omitted"]
    shown = documented_json(scene.output("$ curl -s localhost:9464/debug"))
    assert answer.keys() >= shown.keys() and first.keys() == shown["omitted"][0].keys()
    assert first["metric"] == shown["omitted"][0]["metric"], first


def documented_json(text: str) -> dict[str, Any]:
    """An object that a document shows in part."""
    shown: dict[str, Any] = json.loads(text.replace(", ...}", "}"))
    return shown


# docs/queries.md


@shows("docs/queries.md", "curl --get", "$ tidegate explain", "$ tidegate tap")
def test_the_gateway_is_asked(scene: Scene) -> None:
    scene.write("gateway.yaml", GATEWAY)
    scene.agents(options="--agents 1 --prefix rank_")
    scene.gateway()
    answer = json.loads(scene.until(scene.block("curl --get"), '"result":\\[{'))
    assert answer["status"] == "success" and answer["data"]["resultType"] == "vector"
    explained = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", scene.output("$ tidegate explain"))
    shown = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", scene.until(scene.block("$ tidegate explain"), "alive"))
    assert pattern(explained).fullmatch(shown), shown
    tapped = scene.ask(scene.block("$ tidegate tap")).stdout.splitlines()
    documented = scene.output("$ tidegate tap").splitlines()
    assert len(tapped) == len(documented) == 2
    for line in [*tapped, *documented]:
        assert re.fullmatch(r"agent_\w+\{.*cluster=a.*\} \S+", line), line


# docs/rules.md


@shows("docs/rules.md", "web.yaml:4")
def test_a_rule_that_reaches_beyond_the_history_is_refused(scene: Scene) -> None:
    shown = scene.block("web.yaml:4")
    scene.write("web.yaml", "groups:\n  - name: web\n    rules:\n      - {record: hits:rate1h, expr: 'rate(hits_total[1h])'}\n")
    scene.write(
        "gateway.yaml",
        """
receivers: {otlp: {protocols: {http: }}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}}
extensions: {admin: {endpoint: "127.0.0.1:8080", history: {retention: 10m}}, rules: {files: [web.yaml]}}
service:
  extensions: [admin, rules]
  pipelines:
    metrics: {receivers: [otlp], exporters: [prometheus]}
""",
    )
    said = scene.ask("tidegate validate --config gateway.yaml", code=1)
    flat = re.sub(r"\s+", " ", said.stdout + said.stderr)
    place, _, rest = re.sub(r"\s+", " ", shown).strip().partition(": ")
    why, _, remedy = rest.partition(": set ")
    assert place in flat and why in flat and remedy in flat, flat


# docs/sdk.md


@shows("docs/sdk.md", "tar -xf")
def test_the_first_program_of_the_rust_sdk_runs(scene: Scene) -> None:
    with_cargo(scene)
    scene.ask(scene.block("tar -xf"))
    program, *_ = (block.text for block in blocks_of(ROOT / "docs/sdk.md") if block.language == "rust")
    (scene.work / "service/src/main.rs").write_text(program)
    # The versions that the build of the gateway has fetched.
    shutil.copy(ROOT / "Cargo.lock", scene.work / "service")
    command, work = [*scene.has("cargo run").split(), "--quiet"], scene.work / "service"
    result = subprocess.run(
        command, cwd=work, env=scene.environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    first, *others = result.stdout.splitlines()
    assert first == "Some(0.2)" and 'service_requests_total{model="llama"} 1' in others, result.stdout


# docs/testing.md


@shows("docs/testing.md", "$ tidegate test", "gateway.test.yaml:17")
def test_a_configuration_is_tested(scene: Scene) -> None:
    tests, *_ = (block.text for block in blocks_of(ROOT / "docs/testing.md") if block.language == "yaml")
    scene.write(
        "gateway.yaml",
        """
receivers: {nixl: {directories: [/run/nixl]}}
processors: {aggregate: {rules: nixl}}
exporters: {prometheus: {endpoint: "127.0.0.1:9464"}}
service: {pipelines: {metrics: {receivers: [nixl], processors: [aggregate], exporters: [prometheus]}}}
""",
    )
    (scene.work / "gateway.test.yaml").write_text(tests)
    command = scene.block("$ tidegate test")
    assert pattern(scene.output("$ tidegate test")).fullmatch(scene.ask(command).stdout)
    # The second agent sends nothing.
    (scene.work / "gateway.test.yaml").write_text(tests.replace("value: 50}", "value: 0}"))
    failed = scene.ask(command, code=1)
    shown = scene.block("gateway.test.yaml:17")
    flat = re.sub(r"\s+", " ", failed.stdout + failed.stderr)
    assert re.sub(r"\s+", " ", shown).strip() in flat, failed.stdout + failed.stderr
