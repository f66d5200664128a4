# SPDX-License-Identifier: Apache-2.0

"""Pages of inference engines, as vLLM, SGLang, and the frontends and workers of Dynamo serve them, and servers for them.

`names.yaml` says where their names and labels are from.
"""

import http.server
import json
import threading
import time
from typing import Callable, Sequence

Labels = dict[str, str]

# The page for a time since the start, in seconds.
Page = Callable[[float], str]

VLLM = {
    "gauge": ("num_requests_running", "num_requests_waiting"),
    "counter": ("num_preemptions", "prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits"),
    "histogram": (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
    ),
}
VLLM_LABELS = {"engine": "0", "model_name": "llama"}

# What a worker of Dynamo adds to the series of its engine.
WORKER_LABELS = {
    "dynamo_component": "backend",
    "dynamo_endpoint": "generate",
    "dynamo_namespace": "dynamo",
    "model": "llama",
    "worker_id": "1",
}

SGLANG = {
    "gauge": ("num_running_reqs", "num_queue_reqs", "gen_throughput", "cache_hit_rate"),
    "counter": ("prompt_tokens", "generation_tokens", "num_requests"),
    "histogram": ("time_to_first_token_seconds", "e2e_request_latency_seconds"),
}
# Its schedulers report gauges. The process that takes requests reports all else.
SGLANG_LABELS = {"engine_type": "unified", "model_name": "llama"}
SCHEDULER_LABELS = {**SGLANG_LABELS, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
REQUEST_LABELS = {**SGLANG_LABELS, "is_streaming": "false"}

DYNAMO = {
    "gauge": ("inflight_requests", "queued_requests"),
    "histogram": (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_duration_seconds",
        "input_sequence_tokens",
        "output_sequence_tokens",
    ),
}

# The rate of requests, per second.
RATE = 20


def sample(name: str, labels: Labels, value: float) -> str:
    """A line with its labels in the order in which these programs write them."""
    return f"{name}{{{','.join(f'{label}={json.dumps(text)}' for label, text in sorted(labels.items()))}}} {value}"


def family(name: str, kind: str, lines: Sequence[str]) -> str:
    return "\n".join([f"# HELP {name} A metric.", f"# TYPE {name} {kind}", *lines, ""])


def single(name: str, kind: str, labels: Labels, value: float) -> str:
    return family(name, kind, [sample(name, labels, value)])


def histogram(name: str, labels: Labels, count: int) -> str:
    """Half of the values in each of two buckets."""
    bounds = [("0.05", 0), ("0.25", count // 2), ("1.0", count), ("+Inf", count)]
    lines = [sample(f"{name}_bucket", {**labels, "le": bound}, value) for bound, value in bounds]
    return family(name, "histogram", [*lines, sample(f"{name}_sum", labels, count * 0.4), sample(f"{name}_count", labels, count)])


def vllm(seconds: float, more: Labels | None = None) -> str:
    labels, count = {**VLLM_LABELS, **(more or {})}, int(RATE * seconds)
    pages = [single(f"vllm:{name}", "gauge", labels, 3) for name in VLLM["gauge"]]
    pages.append(single("vllm:kv_cache_usage_perc", "gauge", labels, 0.5))
    pages += [single(f"vllm:{name}_total", "counter", labels, count * 100) for name in VLLM["counter"]]
    reasons = ("stop", "length", "abort", "error", "repetition")
    success = [sample("vllm:request_success_total", {**labels, "finished_reason": reason}, count) for reason in reasons]
    pages.append(family("vllm:request_success_total", "counter", success))
    pages += [histogram(f"vllm:{name}", labels, count) for name in VLLM["histogram"]]
    return "".join(pages)


def dynamo_worker(seconds: float) -> str:
    """A worker with vLLM."""
    return vllm(seconds, WORKER_LABELS)


def sglang(seconds: float) -> str:
    count = int(RATE * seconds)
    pages = [single(f"sglang:{name}", "gauge", SCHEDULER_LABELS, 3) for name in SGLANG["gauge"]]
    pages.append(single("sglang:token_usage", "gauge", SCHEDULER_LABELS, 0.5))
    pages += [single(f"sglang:{name}_total", "counter", REQUEST_LABELS, count * 100) for name in SGLANG["counter"]]
    pages += [histogram(f"sglang:{name}", REQUEST_LABELS, count) for name in SGLANG["histogram"]]
    pages.append(histogram("sglang:inter_token_latency_seconds", SGLANG_LABELS, count))
    return "".join(pages)


def dynamo(seconds: float) -> str:
    labels, count = {"model": "llama"}, int(RATE * seconds)
    ended = {**labels, "endpoint": "chat_completions", "request_type": "stream"}
    requests = [
        sample("dynamo_frontend_requests_total", {**ended, "status": status, "error_type": error}, value)
        for status, error, value in (("success", "", count), ("error", "internal", count // 20))
    ]
    pages = [family("dynamo_frontend_requests_total", "counter", requests)]
    pages += [single(f"dynamo_frontend_{name}", "gauge", labels, 3) for name in DYNAMO["gauge"]]
    pages.append(single("dynamo_frontend_output_tokens_total", "counter", labels, count * 100))
    pages += [histogram(f"dynamo_frontend_{name}", labels, count) for name in DYNAMO["histogram"]]
    return "".join(pages)


def serve(page: Page, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Serves a page that changes with time, in seconds since the start. Port 0 is any free one."""
    started = time.monotonic()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer("text/plain; version=0.0.4", page(time.monotonic() - started))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer("application/json", json.dumps({"model": asked["model"], "choices": [{"index": 0, "text": " 1, 2"}]}))

        def answer(self, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
