# SPDX-License-Identifier: Apache-2.0

"""A proxy whose connections can hang, like those behind a load balancer that is gone."""

import contextlib
import socket
import threading


class Proxy:
    """Passes connections to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._hanging = threading.Event()
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def hang(self) -> None:
        """Present connections pass nothing any more, and stay open. New ones work."""
        self._hanging.set()
        self._hanging = threading.Event()

    def stop(self) -> None:
        self.hang()
        for found in (self._listener, *self._sockets):
            found.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self.connections += 1
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(*pair, self._hanging), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, hanging: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if hanging.is_set():
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
