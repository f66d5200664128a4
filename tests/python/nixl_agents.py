#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets real NIXL agents do what agents of a busy or odd process do, and prints what they did as nixl_transfer.py does.

    nixl_agents.py rate --seconds 3      one agent writes to another this often a second, or as fast as it can
    nixl_agents.py again --times 3       agents end, and others of the same names are made
    nixl_agents.py many --pairs 4        pairs of agents, all at a time
    nixl_agents.py fork                  the process forks while it has agents; the child makes its own
    nixl_agents.py steps                 two agents exchange something for every line of standard input

Every scenario waits two flush intervals before agents end, as NIXL does not flush then. "steps" prints a line for each
step, of that step. "events" is how many events NIXL would have produced for an agent, had it dropped none.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import sys
import time

from nixl_transfer import Peer, drive, flush_intervals_s, load_nixl

# Events of a transfer, in NIXL's words: its times, its bytes, itself.
EVENTS_PER_TRANSFER = 4
# That many transfers between two looks at the clock.
BURST = 64


def report_of(peer, events):
    return {**peer.report(), "events": events}


def pair(api, names):
    first, second = (Peer(api, name) for name in names)
    first.connect(second)
    second.connect(first)
    return first, second


def settle():
    time.sleep(flush_intervals_s(2))


def rate(api, options):
    """One request, posted again and again, and polled without a pause; rests in between where that is too fast."""
    size = options.size
    first, second = pair(api, ("rate_a", "rate_b"))
    settle()
    handle = first.request("WRITE", size)
    agent, transfers = first.agent, 0
    started = time.monotonic()
    while time.monotonic() - started < options.seconds:
        for _ in range(BURST):
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            if state != "DONE":
                raise RuntimeError(state)
        transfers += BURST
        early = transfers / options.per_second - (time.monotonic() - started)
        if early > 0:
            time.sleep(early)
    elapsed = time.monotonic() - started
    agent.release_xfer_handle(handle)
    settle()
    first.done["transfers"] = first.done["agent_tx_requests_num"] = transfers
    first.done["agent_tx_bytes"] = transfers * size
    reports = {
        "rate_a": report_of(first, 1 + EVENTS_PER_TRANSFER * transfers),
        "rate_b": report_of(second, 1),
    }
    return reports, {"per_second": transfers / elapsed}, [first, second]


def again(api, options):
    """The totals are those of all agents of a name."""
    totals = {}
    for _ in range(options.times):
        peers = pair(api, ("again_a", "again_b"))
        drive(*peers, transfers=6, errors=1, pause_ms=0)
        settle()
        for peer in peers:
            add(totals.setdefault(peer.name, {}), peer.report())
        del peer, peers
        gc.collect()
    return totals, {}, []


def add(total, more):
    for name, value in more.items():
        if isinstance(value, dict):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def many(api, options):
    pairs = [pair(api, (f"many_{i}_a", f"many_{i}_b")) for i in range(options.pairs)]
    for index, peers in enumerate(pairs):
        drive(*peers, transfers=index + 1, errors=0, pause_ms=0)
    settle()
    peers = [peer for peers in pairs for peer in peers]
    return {peer.name: peer.report() for peer in peers}, {}, peers


def fork(api, options):
    """The child inherits the parent's agents (without their threads), makes one of its own and ends. UCX transfers
    nothing in a child; registering memory works."""
    parents = pair(api, ("fork_a", "fork_b"))
    drive(*parents, transfers=5, errors=0, pause_ms=0)
    settle()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        own = Peer(api, "child")
        own.register_and_deregister(777)
        settle()
        os.write(write, json.dumps({own.name: own.report()}).encode())
        os._exit(0)
    os.close(write)
    drive(*parents, transfers=3, errors=0, pause_ms=0)
    settle()
    said = os.fdopen(read).read()
    _, status = os.waitpid(child, 0)
    reports = {peer.name: peer.report() for peer in parents}
    child_report = {"pid": child, "status": status, "agents": json.loads(said or "{}")}
    return reports, {"child": child_report}, list(parents)


def steps(api, options):
    peers = pair(api, ("steps_a", "steps_b"))
    for line in sys.stdin:
        drive(*peers, transfers=4, errors=1, pause_ms=0)
        settle()
        options.print({peer.name: peer.report() for peer in peers}, {"step": line.strip()})
        for peer in peers:
            peer.done = dict.fromkeys(peer.done, 0)
            peer.errors = {}
    return {}, {}, list(peers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=[f.__name__ for f in (rate, again, many, fork, steps)])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--per-second", type=float, default=25_000, help="transfers; inf: no limit")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a transfer")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=4)
    options = parser.parse_args()

    # NIXL and UCX may log to standard output: keep it for JSON.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    wheel = importlib.metadata.version("nixl-cu12")

    def report(agents, more):
        out.write(json.dumps({"wheel": wheel, "pid": os.getpid(), "agents": agents, **more}) + "\n")
        out.flush()

    options.print = report
    agents, more, kept = globals()[options.scenario](load_nixl(), options)
    report(agents, more)
    del kept


if __name__ == "__main__":
    main()
