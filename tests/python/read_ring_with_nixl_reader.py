#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the telemetry reader that a NIXL wheel ships on a ring file and prints what it printed.

PYTHONPATH names the wheel. The reader consumes the ring: it moves read_pos. It never ends by
itself, so it gets SIGINT once it has printed --events events, or after --timeout-s. Exit status:
the reader's own, or 3 if the events didn't come in time.

As installed by pip the reader has no execute bit and an rpath that misses its libraries.
"""

import argparse
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading

EXIT_TIMED_OUT = 3


def start_reader(ring):
    package = importlib.util.find_spec("nixl_cu12").submodule_search_locations[0]
    wheel = pathlib.Path(package).parent
    reader = wheel / "nixl_cu12.scripts" / "telemetry_reader"
    reader.chmod(0o755)
    return subprocess.Popen(
        [reader, ring],
        env={**os.environ, "LD_LIBRARY_PATH": str(wheel / ".nixl_cu12.mesonpy.libs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Printer(threading.Thread):
    """Copies the reader's output to ours; `settled` is set at the last event wanted, or the end."""

    def __init__(self, output, events):
        super().__init__(daemon=True)
        self.output, self.left = output, events
        self.settled = threading.Event()

    def run(self):
        for line in self.output:
            sys.stdout.write(line)
            # The rule that closes an event; the one that opens it has a title.
            self.left -= line.strip() == "=" * 27
            if self.left == 0:
                self.settled.set()
        self.settled.set()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ring")
    parser.add_argument("--events", type=int, default=1, help="interrupt after this many")
    parser.add_argument("--timeout-s", type=float, default=20)
    options = parser.parse_args()

    reader = start_reader(options.ring)
    printer = Printer(reader.stdout, options.events)
    printer.start()
    printer.settled.wait(options.timeout_s)
    complete = printer.left <= 0
    reader.send_signal(signal.SIGINT)
    try:
        status = reader.wait(timeout=10)
    finally:
        reader.kill()
    printer.join()
    return status or (0 if complete else EXIT_TIMED_OUT)


if __name__ == "__main__":
    sys.exit(main())
