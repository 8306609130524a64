"""A client that asks a server on this machine exactly what it is told to, without a browser's good manners."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glassformer.explain.security import TOKEN_HEADER


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    port: int
    token: str

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """One request on a connection of its own; a header given as None is left out."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        wanted: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", TOKEN_HEADER: self.token}
        if data is not None:
            wanted |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        wanted |= headers or {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in wanted.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return self.ask("POST", path, body)
