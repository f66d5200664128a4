# SPDX-License-Identifier: Apache-2.0

"""Pages of inference engines, as vLLM, SGLang and the frontend of Dynamo serve them, and servers for them."""

import http.server
import json
import threading
import time
from typing import Callable, Sequence

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

SGLANG = {
    "gauge": ("num_running_reqs", "num_queue_reqs", "gen_throughput", "cache_hit_rate"),
    "counter": ("prompt_tokens", "generation_tokens", "num_requests"),
    "histogram": ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"),
}

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


def family(name: str, kind: str, lines: Sequence[str]) -> str:
    return "\n".join([f"# HELP {name} A metric.", f"# TYPE {name} {kind}", *lines, ""])


def histogram(name: str, labels: str, count: int) -> str:
    """Half of the values in each of two buckets."""
    bounds = [("0.05", 0), ("0.25", count // 2), ("1.0", count), ("+Inf", count)]
    lines = [f'{name}_bucket{{{labels},le="{bound}"}} {value}' for bound, value in bounds]
    return family(name, "histogram", [*lines, f"{name}_sum{{{labels}}} {count * 0.4}", f"{name}_count{{{labels}}} {count}"])


def vllm(seconds: float) -> str:
    labels, count = 'engine="0",model_name="llama"', int(RATE * seconds)
    pages = [family(f"vllm:{name}", "gauge", [f"vllm:{name}{{{labels}}} 3"]) for name in VLLM["gauge"]]
    pages.append(family("vllm:kv_cache_usage_perc", "gauge", [f"vllm:kv_cache_usage_perc{{{labels}}} 0.5"]))
    pages += [family(f"vllm:{name}_total", "counter", [f"vllm:{name}_total{{{labels}}} {count * 100}"]) for name in VLLM["counter"]]
    success = [f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}' for reason in ("stop", "length", "abort")]
    pages.append(family("vllm:request_success_total", "counter", success))
    pages += [histogram(f"vllm:{name}", labels, count) for name in VLLM["histogram"]]
    return "".join(pages)


def sglang(seconds: float) -> str:
    labels, count = 'model_name="llama",engine_type="unified",tp_rank="0",pp_rank="0"', int(RATE * seconds)
    pages = [family(f"sglang:{name}", "gauge", [f"sglang:{name}{{{labels}}} 3"]) for name in SGLANG["gauge"]]
    pages.append(family("sglang:token_usage", "gauge", [f"sglang:token_usage{{{labels}}} 0.5"]))
    pages += [family(f"sglang:{name}_total", "counter", [f"sglang:{name}_total{{{labels}}} {count * 100}"]) for name in SGLANG["counter"]]
    pages += [histogram(f"sglang:{name}", labels, count) for name in SGLANG["histogram"]]
    return "".join(pages)


def dynamo(seconds: float) -> str:
    labels, count = 'model="llama"', int(RATE * seconds)
    requests = [
        f'dynamo_frontend_requests_total{{endpoint="chat_completions",{labels},request_type="stream",status="{status}"}} {value}'
        for status, value in (("success", count), ("error", count // 20))
    ]
    pages = [family("dynamo_frontend_requests_total", "counter", requests)]
    pages += [family(f"dynamo_frontend_{name}", "gauge", [f"dynamo_frontend_{name}{{{labels}}} 3"]) for name in DYNAMO["gauge"]]
    pages.append(family("dynamo_frontend_output_tokens_total", "counter", [f"dynamo_frontend_output_tokens_total{{{labels}}} {count * 100}"]))
    pages += [histogram(f"dynamo_frontend_{name}", labels, count) for name in DYNAMO["histogram"]]
    return "".join(pages)


def serve(page: Callable[[float], str], port: int = 0) -> http.server.ThreadingHTTPServer:
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
