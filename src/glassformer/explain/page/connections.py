"""Limit what connections can hold: the time until a request has arrived, and their number before the cookie is known.

Every user of the machine can open connections. One that sends nothing, or an unfinished head, or a body after its
refusal, or nothing after an answer, is closed after a time; and of connections that have not shown the cookie only a
number is kept, the latest. So they never use up what the owner's browser needs.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassformer.explain.page.security import AccessControl, ConnectionLimits


class GuardedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with `ConnectionLimits`."""

    def __init__(
        self,
        *arguments: Any,
        door: AccessControl,
        limits: ConnectionLimits,
        unauthenticated: dict[GuardedProtocol, None],
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._door, self._limits, self._unauthenticated = door, limits, unauthenticated
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close the oldest connection without the cookie if there are too many."""
        super().connection_made(transport)
        self._unauthenticated[self] = None
        if len(self._unauthenticated) > self._limits.unauthenticated:
            next(iter(self._unauthenticated)).close_at_once()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._request_arrived()
        self._unauthenticated.pop(self, None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has arrived; a whole head ends the waiting, and the cookie in it is remembered."""
        earlier = self.cycle
        super().handle_events()
        if self.cycle is not earlier:
            self._request_arrived()
            if self in self._unauthenticated and self._door.knows(Headers(raw=self.headers)):
                del self._unauthenticated[self]

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has been sent already."""
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._await_request()

    def close_at_once(self) -> None:
        """Close the connection, and send nothing that waits to be read."""
        self._unauthenticated.pop(self, None)
        self.transport.abort()

    def _await_request(self) -> None:
        self._request_arrived()
        self._deadline = self.loop.call_later(self._limits.head_seconds, self.close_at_once)

    def _request_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def guarded(door: AccessControl, limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Return the protocol for one server, as uvicorn takes it."""
    unauthenticated: dict[GuardedProtocol, None] = {}
    return cast(Any, partial(GuardedProtocol, door=door, limits=limits, unauthenticated=unauthenticated))
