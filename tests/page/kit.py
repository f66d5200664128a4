# SPDX-License-Identifier: Apache-2.0

"""What the tests of the page share: a gateway with data and a broken vendor, and a browser.

`cargo xtask page` names the gateway and the folder of the unpacked Chromium in variables.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator

from playwright.sync_api import Browser, Page, expect, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from ports import free_ports

ROOT = Path(__file__).parents[2]
PICTURES = Path(os.environ.get("TIDEGATE_PICTURES", ROOT / "target/page"))
CONTRAST = Path(__file__).with_name("contrast.js").read_text()

# Log records in each request.
RECORDS = 20

# The name of the element that has the focus. A label has its text before its field.
FOCUSED = """() => {
  const { activeElement: node } = document;
  return (node.getAttribute("aria-label") ?? node.labels?.[0]?.firstChild.textContent ?? node.textContent).trim();
}"""

# A text that would run if a view read it as HTML.
HOSTILE = "<img src=x onerror=document.title='run'>"

# Each view with a text that its data give.
VIEWS = {
    "graph": "otlphttp/vendor",
    "components": "sending to http://127.0.0.1:1",
    "component/exporter/otlphttp%2Fvendor": "sending to http://127.0.0.1:1",
    "component/processor/aggregate": "set level: detailed of service::telemetry::metrics",
    "ledger": "processors::aggregate@metrics",
    "targets": "Connection refused",
    "sources": "rank_0",
    "composites": "queue_depth_avg_10s",
    "query/sum%20by%20(job)%20(up)": '{job="self"}',
    "cardinality": "queue_depth",
    "rules": "Rules are not configured.",
    "tap": "Component",
    "config": "otlphttp/vendor:",
}

CONFIG = """
receivers:
  nixl: {{directories: ["{directory}/rings"]}}
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{otlp}"}}}}}}
  uds: {{datagram: {{path: "{directory}/statsd.sock"}}}}
  prometheus:
    config:
      scrape_configs:
        - {{job_name: self, scrape_interval: 1s, static_configs: [{{targets: ["127.0.0.1:{own}"]}}]}}
        - {{job_name: absent, scrape_interval: 1s, static_configs: [{{targets: ["127.0.0.1:1"]}}]}}
{receivers}
processors:
  composite:
    composites:
      - {{name: queue_depth_avg_10s, metric: queue_depth, function: avg, window: 10s, by: [model]}}
      - {{name: requests_rate_10s, metric: requests, function: rate, window: 10s}}
  aggregate: {{rules: [{{match: {{name: "*"}}, without: []}}]}}
  batch: {{}}
  filter: {{metrics: {{exclude: {{match_type: strict, metric_names: [latency]}}}}}}
exporters:
  prometheus: {{endpoint: "127.0.0.1:0"}}
  nop: {{}}
  otlphttp/vendor:
    endpoint: "http://127.0.0.1:1"
    headers: {{api-key: "a-secret-key"}}
    sending_queue: {{queue_size: 100}}
{exporters}
extensions:
  admin: {{endpoint: "127.0.0.1:{admin}"{options}}}
{extensions}
service:
  extensions: [{order}admin]
  drain_timeout: 1s
  telemetry: {{metrics: {{address: "127.0.0.1:{own}", level: {level}}}}}
  pipelines:
    metrics: {{receivers: [nixl, otlp, uds, prometheus], processors: [composite, aggregate], exporters: [prometheus]}}
    logs/vendor: {{receivers: [otlp], processors: [batch], exporters: [otlphttp/vendor]}}
    metrics/few: {{receivers: [uds], processors: [filter], exporters: [nop]}}
{pipelines}
"""


def program(name: str) -> str:
    """The path of a part: `cargo xtask page` names it in a variable."""
    variable = f"TIDEGATE_{name.upper()}"
    assert variable in os.environ, f"{variable} is not set: run `cargo xtask page`"
    return os.environ[variable]


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true result of a condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def terminate(*processes: subprocess.Popen[Any]) -> None:
    """Ends processes by SIGTERM. Kills those that still run after a minute, and fails."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Gateway:
    """A gateway, simulated agents, and a thread that sends points, log records and StatsD lines.

    `options` are further options of `admin`, each with a comma before it. `receivers`, `exporters` and `pipelines` are further
    lines. `level` is that of its own metrics.
    """

    def __init__(
        self,
        directory: Path,
        options: str = "",
        extensions: str = "",
        order: str = "",
        receivers: str = "",
        exporters: str = "",
        pipelines: str = "",
        level: str = "normal",
        is_loaded: bool = True,
    ) -> None:
        self.is_loaded = is_loaded
        (directory / "rings").mkdir()
        self.directory = directory
        self.admin, self.otlp, self.own = free_ports(3)
        self.config = directory / "gateway.yaml"
        ports = {"admin": self.admin, "otlp": self.otlp, "own": self.own}
        parts = {"options": options, "extensions": extensions, "order": order}
        parts |= {"receivers": receivers, "exporters": exporters, "pipelines": pipelines}
        self.config.write_text(CONFIG.format(directory=directory, level=level, **ports, **parts))
        self.stopping = threading.Event()
        # Requests by signal, as the gateway has answered them.
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.log = (directory / "log").open("w")
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Gateway":
        try:
            self.start("run", "--config", self.config)
            wait_for("the gateway", self.answers)
            if self.is_loaded:
                self.start("ring", "sim", "--directory", self.directory / "rings", "--agents", "2", "--rate", "50")
                threading.Thread(target=self.send, daemon=True).start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.log.close()
        terminate(*self.processes)

    def start(self, *arguments: str | Path) -> None:
        process = subprocess.Popen([program("binary"), *map(str, arguments)], stdout=self.log, stderr=self.log)
        self.processes.append(process)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    def seconds_of_cpu(self) -> float:
        """The processor time of the gateway since its start, user and system."""
        fields = Path(f"/proc/{self.processes[0].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def answers(self) -> bool:
        try:
            return self.get("/").status in (200, 401)
        except OSError:
            return False

    def get(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            return urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as refused:
            return refused

    def send(self) -> None:
        statsd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        step = 0
        while not self.stopping.wait(0.2):
            step += 1
            try:
                self.post("metrics", points(step))
                self.post("logs", records(RECORDS))
                statsd.sendto(b"requests:3|c\nlatency:12|ms", str(self.directory / "statsd.sock"))
            except OSError:
                # The vendor is broken, so that the gateway refuses log records in the end.
                continue

    def post(self, signal: str, body: dict[str, Any]) -> None:
        url = f"http://127.0.0.1:{self.otlp}/v1/{signal}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=60).close()
            self.accepted[signal] += 1
        except urllib.error.HTTPError as refused:
            refused.close()
            self.refused[signal] += 1


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def points(step: int) -> dict[str, Any]:
    now = str(time.time_ns())
    models = ("llama", "qwen", HOSTILE)
    gauges = [
        {"asDouble": 20 + 15 * ((step * (index + 1)) % 20) / 20, "timeUnixNano": now, "attributes": [attribute("model", model)]}
        for index, model in enumerate(models)
    ]
    metric = {"name": "queue_depth", "gauge": {"dataPoints": gauges}}
    resource = {"attributes": [attribute("service.name", "vllm")]}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}


def records(count: int) -> dict[str, Any]:
    record = {"timeUnixNano": str(time.time_ns()), "body": {"stringValue": HOSTILE}}
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": [record] * count}]}]}


def spans(count: int) -> dict[str, Any]:
    """Spans of as many traces."""
    all_spans = [{"traceId": os.urandom(16).hex(), "spanId": os.urandom(8).hex(), "name": "request"} for _ in range(count)]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": all_spans}]}]}


def chromium(root: Path, scratch: Path) -> tuple[str, dict[str, str]]:
    """The program of unpacked packages, and the environment with their libraries and fonts."""
    libraries = [str(found) for pattern in ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/*") for found in root.glob(pattern) if found.is_dir()]
    fonts = scratch / "fonts.conf"
    rules = (
        '<match><test name="family" qual="any"><string>monospace</string></test>'
        '<edit name="family" mode="prepend" binding="strong"><string>DejaVu Sans Mono</string></edit></match>'
        '<match><edit name="family" mode="append_last" binding="strong"><string>DejaVu Sans</string></edit></match>'
    )
    fonts.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig>'
        f"<dir>{root}/usr/share/fonts</dir><cachedir>{scratch}/fonts</cachedir>{rules}</fontconfig>"
    )
    environment = {"LD_LIBRARY_PATH": ":".join(libraries), "FONTCONFIG_FILE": str(fonts), "HOME": str(scratch)}
    return str(root / "usr/lib/chromium/chromium"), environment


def browsers(scratch: Path) -> Iterator[Browser]:
    program_path, environment = chromium(Path(program("chromium")), scratch)
    # Rows come after scrapes, evaluations and updates of about 1 s each, and other programs run beside the tests.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        # Containers have no permission for Chromium's sandbox. It reads only pages of the gateway.
        browser = playwright.chromium.launch(executable_path=program_path, args=["--no-sandbox", "--disable-dev-shm-usage"], env={**os.environ, **environment})
        yield browser
        browser.close()


class Watched:
    """A page whose errors are noted."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.context.set_default_timeout(60_000)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, view: str) -> Page:
        self.page.goto(f"{self.url}/#/{view}")
        return self.page

    def check(self, text: str, picture: str) -> None:
        """What holds for all views: the text and the contrast in both schemes, the width of a phone, no error. Takes pictures."""
        page = self.page
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("main")).to_contain_text(text)
            expect(page.locator("#stream")).to_have_text("live")
            assert page.evaluate(CONTRAST) == [], scheme
            if scheme == "light":
                self.picture(picture)
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        self.picture(f"{picture}-phone")
        assert page.title() != "run" and page.locator("main img").count() == 0
        assert self.errors == []

    def enter_content(self) -> None:
        """Moves the focus from the top of the page to its content, by the keyboard."""
        self.page.keyboard.press("Tab")
        expect(self.page.locator(".skip")).to_be_focused()
        self.page.keyboard.press("Enter")
        expect(self.page.locator("main")).to_be_focused()

    def tab(self) -> str:
        """Presses Tab. Gives the name of the element that has the focus then."""
        self.page.keyboard.press("Tab")
        return self.page.evaluate(FOCUSED)

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"{name}.png"
        self.page.screenshot(path=file)
        documented = ROOT / "docs" / f"browser-{name}.png"
        if "UPDATE_GOLDEN" in os.environ and name in ("graph", "query"):
            shutil.copy(file, documented)
