# SPDX-License-Identifier: Apache-2.0

"""Runs a script of the shell in a root, in namespaces of its own: `alone.py ro|rw ROOT HOME SCRIPT`, as a child of `unshare`.

The script begins in HOME. It has no network but its own loopback interface, and finds nothing of this machine: no Rust, no
variables. When it ends, so do the processes that it leaves.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Of <linux/sockios.h> and <linux/if.h>.
SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def start_loopback() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main(mode: str, root: str, home: str, script: str) -> None:
    start_loopback()
    mount("--bind", root, root)
    mount("-o", f"remount,bind,{mode}", root)
    mount("--bind", home, f"{root}/root")
    mount("-t", "proc", "proc", f"{root}/proc")
    # Programs need `null` and `urandom`.
    mount("--rbind", "/dev", f"{root}/dev")
    for directory in ("dev/shm", "tmp"):
        mount("-t", "tmpfs", "tmpfs", f"{root}/{directory}")
    os.chroot(root)
    os.chdir("/root")
    os.execve("/bin/sh", ["sh", "-e", "-c", script], {"PATH": PATH, "HOME": "/root"})


if __name__ == "__main__":
    main(*sys.argv[1:])
