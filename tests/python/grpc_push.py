#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends the request of standard input to a gRPC method, several times over one channel of grpcio, and prints how many
calls succeeded.

    grpc_push.py --endpoint unix:/run/otlp.sock --method /package.Service/Method --calls 3
"""

import argparse
import sys

import grpc


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--calls", type=int, default=1)
    options = parser.parse_args()
    request, succeeded = sys.stdin.buffer.read(), 0
    with grpc.insecure_channel(options.endpoint) as channel:
        call = channel.unary_unary(options.method)
        for _ in range(options.calls):
            call(request, timeout=30)
            succeeded += 1
    print(succeeded)


if __name__ == "__main__":
    main()
