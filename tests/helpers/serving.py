"""Texts to explain, and a client of the server that asks for exactly what it is told to.

A browser would have better manners.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from glassformer.explain.page.server import TOKEN

TEXTS = {"classify": "a b good b a", "translate": "abcdef", "lm": "abc"}
DTYPES = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "u8": "u1"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """One who has the token of the printed address."""

    port: int
    token: str

    def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """One request on a connection of its own; a header given as None is left out."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        wanted: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", TOKEN: self.token}
        if data is not None:
            wanted |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        wanted |= headers or {}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in wanted.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        return self.request("POST", path, body)
