"""Find a port of this machine to serve the page at."""

from __future__ import annotations

import socket
import sys

from glassformer.errors import UsageError

HOST = "127.0.0.1"
PORT = 8317
"""Where it is served when no port is named, or at the next free one."""
N_PORTS = 50


def listen(port: int | None) -> socket.socket:
    """Return a listening socket of 127.0.0.1 at the port, or at the first free one from 8317 on."""
    candidates = range(PORT, PORT + N_PORTS) if port is None else [port]
    problem: Exception | None = None
    for candidate in candidates:
        # With the protocol named, asyncio sends without waiting; else each small tensor would take 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if sys.platform == "win32":  # there SO_REUSEADDR would let two servers share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, candidate))
            listener.listen()
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            problem = error
    wanted = f"port {port}" if port is not None else f"every port from {PORT} to {PORT + N_PORTS - 1}"
    reason = f": {problem.strerror}" if isinstance(problem, OSError) else ""
    raise UsageError(f"{wanted} cannot be used{reason}", "choose another with --port, or leave --port out")
