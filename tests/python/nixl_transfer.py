#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets two real NIXL agents of one process exchange memory and prints what they did.

The caller sets NIXL_TELEMETRY_* (NIXL reads them when an agent is made) and PYTHONPATH (a NIXL
wheel and numpy). Works with the wheels 1.0.1 to 1.5.1.

Standard output is one JSON object on one line. Its totals are under NIXL's own event names, so
that they compare directly with rings, stores and counters:

    {"wheel": "1.5.1", "pid": 123, "agents": {"agent_a": {
        "transfers": 9, "agent_tx_bytes": 1, "agent_rx_bytes": 1, "agent_tx_requests_num": 1,
        "agent_rx_requests_num": 1, "agent_memory_registered": 1, "agent_memory_deregistered": 1,
        "errors": {"not_found": 1}}}}

Only the initiator of a transfer counts it. "errors" holds those that NIXL counts: every wheel
counts an unknown peer or address (not_found) and a remote list given as the local one
(invalid_param), and none counts a request that is polled before it was posted (not_posted).
"""

import argparse
import importlib.metadata
import json
import os
import sys
import time
import types

BUFFER_BYTES = 1 << 20
SIZES = (1, 4096, 65536, 1000, 262144, 17)
TRANSFER_DEADLINE_S = 30
TRANSFER_POLL_S = 0.0005
FLUSH_INTERVAL_DEFAULT_MS = 100


def load_nixl():
    """The wheel's API module. Wheels before 1.5 import torch for one isinstance check only."""
    if "torch" not in sys.modules:
        torch = types.ModuleType("torch")
        torch.Tensor = type("Tensor", (), {})
        sys.modules["torch"] = torch
    import nixl_cu12._api

    return nixl_cu12._api


class Peer:
    """One agent with one registered buffer and the record of what it did."""

    def __init__(self, api, name):
        import numpy

        self.name = name
        self.agent = api.nixl_agent(name, api.nixl_agent_config(backends=["UCX"]))
        self.buffer = numpy.zeros(BUFFER_BYTES, dtype=numpy.uint8)
        self.spare = numpy.zeros(BUFFER_BYTES, dtype=numpy.uint8)
        self.done = dict.fromkeys(
            (
                "transfers",
                "agent_tx_bytes",
                "agent_rx_bytes",
                "agent_tx_requests_num",
                "agent_rx_requests_num",
                "agent_memory_registered",
                "agent_memory_deregistered",
            ),
            0,
        )
        self.errors = {}
        self.register(self.buffer, BUFFER_BYTES)

    def register(self, buffer, size):
        handle = self.agent.register_memory([(buffer.ctypes.data, size, 0, "")], "DRAM")
        self.done["agent_memory_registered"] += size
        return handle

    def register_and_deregister(self, size):
        self.agent.deregister_memory(self.register(self.spare, size))
        self.done["agent_memory_deregistered"] += size

    def connect(self, other):
        name = self.agent.add_remote_agent(other.agent.get_agent_metadata())
        self.remote = name.decode() if isinstance(name, bytes) else name
        self.remote_address = other.buffer.ctypes.data

    def descriptors(self, address, size):
        return self.agent.get_xfer_descs([(address, size, 0)], "DRAM")

    def request(self, operation, size, local=None, remote_name=None):
        return self.agent.initialize_xfer(
            operation,
            self.descriptors(local or self.buffer.ctypes.data, size),
            self.descriptors(self.remote_address, size),
            remote_name or self.remote,
            b"",
        )

    def transfer(self, operation, size):
        handle = self.request(operation, size)
        state = self.agent.transfer(handle)
        deadline = time.monotonic() + TRANSFER_DEADLINE_S
        while state == "PROC":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{operation} of {size} bytes by {self.name}")
            time.sleep(TRANSFER_POLL_S)
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"{operation} of {size} bytes by {self.name}: {state}")
        self.agent.release_xfer_handle(handle)
        direction = "tx" if operation == "WRITE" else "rx"
        self.done["transfers"] += 1
        self.done[f"agent_{direction}_bytes"] += size
        self.done[f"agent_{direction}_requests_num"] += 1

    def unknown_peer(self):
        self.request("WRITE", 1, remote_name="nobody")

    def unregistered_address(self):
        self.request("WRITE", 1, local=self.buffer.ctypes.data + (1 << 30))

    def remote_list_as_local(self):
        remote = self.agent.prep_xfer_dlist(self.remote, [(self.remote_address, 1, 0)], "DRAM")
        local = self.agent.prep_xfer_dlist(
            "NIXL_INIT_AGENT", [(self.buffer.ctypes.data, 1, 0)], "DRAM"
        )
        self.agent.make_prepped_xfer("WRITE", remote, [0], local, [0], b"")

    def poll_before_post(self):
        self.agent.check_xfer_state(self.request("WRITE", 1))

    def fail(self, provoke, status, counted=True):
        try:
            provoke()
        except Exception as error:
            if status.upper() not in str(error):
                raise
        else:
            raise RuntimeError(f"{provoke.__name__} did not fail")
        if counted:
            self.errors[status] = self.errors.get(status, 0) + 1

    def fail_in_every_way(self):
        self.fail(self.unknown_peer, "not_found")
        self.fail(self.unregistered_address, "not_found")
        self.fail(self.remote_list_as_local, "invalid_param")
        self.fail(self.poll_before_post, "not_posted", counted=False)

    def report(self):
        return {**self.done, "errors": self.errors}


def drive(first, second, transfers, errors, pause_ms):
    """`second` starts half as many transfers as `first`, so that their totals differ."""
    for index in range(transfers):
        operation = ("WRITE", "READ")[index % 2]
        size = SIZES[index % len(SIZES)]
        first.transfer(operation, size)
        if index % 2 == 1:
            second.transfer("READ" if index % 4 == 1 else "WRITE", size + 1)
        time.sleep(pause_ms / 1000)
    for _ in range(errors):
        first.fail_in_every_way()
    first.register_and_deregister(12345)
    second.register_and_deregister(4096)


def flush_intervals_s(count):
    interval = os.environ.get("NIXL_TELEMETRY_RUN_INTERVAL", FLUSH_INTERVAL_DEFAULT_MS)
    return count * int(interval) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", default="agent_a,agent_b", help="the two names, with a comma")
    parser.add_argument("--transfers", type=int, default=20, help="started by the first agent")
    parser.add_argument("--errors", type=int, default=2, help="rounds of provoked errors")
    parser.add_argument("--pause-ms", type=float, default=0, help="sleep after each transfer")
    parser.add_argument("--hold", action="store_true", help="live until standard input closes")
    options = parser.parse_args()

    # NIXL and UCX may log to standard output: keep it for the one line of JSON.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    api = load_nixl()
    first, second = (Peer(api, name) for name in options.agents.split(","))
    first.connect(second)
    second.connect(first)
    drive(first, second, options.transfers, options.errors, options.pause_ms)
    # NIXL doesn't flush at exit: whatever is younger than an interval would be lost.
    time.sleep(flush_intervals_s(2))
    json.dump(
        {
            "wheel": importlib.metadata.version("nixl-cu12"),
            "pid": os.getpid(),
            "agents": {peer.name: peer.report() for peer in (first, second)},
        },
        report,
    )
    report.write("\n")
    report.flush()
    if options.hold:
        sys.stdin.read()


if __name__ == "__main__":
    main()
