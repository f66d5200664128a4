# SPDX-License-Identifier: Apache-2.0

"""Free ports for the tests in Python."""

import itertools
import random
import socket

# The numbers of the next free ports. The first is random, so that runs side by side rarely meet.
NUMBERS = itertools.count(random.randrange(22_000))


def free_port() -> int:
    """A port that no other call gets, below those that connections and listeners on port 0 get: nothing takes it meanwhile."""
    while True:
        port = 10_000 + next(NUMBERS) % 22_000
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
