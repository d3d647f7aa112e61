"""One request to a server that somebody named, and its answer: bounded in bytes, in the time to the next one, and in
all. Redirects are not followed and no proxy is used: what is asked goes to the address that was typed. Link-local
addresses, where clouds keep their machines' credentials, are asked nothing, whatever name leads there.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

from decoders.errors import UserError
from decoders.errors import reason_of as first_reason

CONNECT_S, ANSWER_S = 10.0, 300.0  # most seconds for a first answer, and for the next chunk of a stream (a long prompt)
WHOLE_S, STREAM_S = 20.0, 1800.0  # most seconds for a whole answer, and for a whole stream
MOST_ANSWER = 4 << 20  # bytes


class ServerFault(UserError):
    """The reason why a server could not be asked, or did not finish, in one sentence."""


class HttpAnswer:
    """A server's answer of status 200, not yet read; ``close`` ends it from any thread. ``seconds`` bounds the wait for
    its next bytes, ``whole`` all of it. Raises ServerFault.
    """

    def __init__(
        self, address: str, verb: str, path: str, body: Any = None, key: str = "", seconds: float = CONNECT_S,
        whole: float = WHOLE_S,
    ) -> None:  # fmt: skip
        self.address, self.whole, self.is_expired = f"{address}{path}", whole, False
        parts = urlsplit(address)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Accept": "application/json", "Connection": "close"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        connection = None
        self._timer = threading.Timer(whole, self._expire)
        self._timer.daemon = True
        try:
            connection = kind(str(parts.hostname), parts.port, timeout=CONNECT_S)
            connection._create_connection = connect  # type: ignore[attr-defined]
            connection.connect()
            self.socket = connection.sock
            self.socket.settimeout(seconds)
            self._timer.start()
            connection.request(verb, f"{parts.path}{path}{f'?{parts.query}' if parts.query else ''}", data, headers)
            self.response = connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._timer.cancel()
            if connection is not None:
                connection.close()
            reason = f"{address} does not answer ({self.reason(problem)})"
            raise ServerFault(f"{reason}: is the server up, and the port right?") from None
        if self.response.status != 200:
            raise self._fault()

    def json(self) -> Any:
        """All of it. Raises ServerFault where it is no JSON."""
        data = self.read(MOST_ANSWER)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ServerFault(f"{self.address} does not answer in JSON: is it vLLM, llama.cpp or their like?") from None

    def read(self, max_bytes: int) -> bytes:
        """At most so many of its bytes. Raises ServerFault where it ends too early, or takes too long."""
        try:
            data = self.response.read(max_bytes)
            if self.is_expired:
                raise TimeoutError
            return data
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise ServerFault(f"{self.address} does not answer whole ({self.reason(problem)})") from None
        finally:
            self.end()

    def end(self) -> None:
        """Take note that it was read, or is not read on."""
        self._timer.cancel()
        self.response.close()

    def close(self) -> None:
        """End it: whoever reads gets nothing more, and the server notices."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def reason(self, problem: Exception) -> str:
        """Words for what went wrong with it."""
        return f"not done within {self.whole:,.0f} s" if self.is_expired else reason_of(problem)

    def _expire(self) -> None:
        self.is_expired = True
        self.close()

    def _fault(self) -> ServerFault:
        status = self.response.status
        if status in (401, 403):
            self.end()
            return ServerFault(f"{self.address} refuses the request ({status}): give the API key that it asks for")
        fault: Any = None
        with contextlib.suppress(ServerFault):
            fault = self.json()
        message = error_text(fault.get("error", fault.get("detail", fault)) if isinstance(fault, dict) else fault)
        return ServerFault(f"{self.address} answers {status}{f': {message}' if message else ''}")


def connect(address: tuple[str, int], timeout: float | None = None, source_address: Any = None) -> socket.socket:
    """A connection to the first address of a host that takes one; the address that was checked is the one that is used.
    Raises OSError where none does, or one of them is link-local.
    """
    places = [place for *_, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)]
    for place in places:
        if is_refused(str(place[0])):
            raise OSError(f"{place[0]} is a link-local address, and those are not asked")
    fault = OSError("the name has no address")
    for place in places:
        try:
            return socket.create_connection((str(place[0]), int(place[1])), timeout, source_address)
        except OSError as problem:
            fault = problem
    raise fault


def is_refused(address: str) -> bool:
    """True for addresses that no server of models has: link-local ones, multicast, and those that are none.

    >>> [is_refused(one) for one in ("127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0")]
    [False, True, True, True]
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_link_local or ip.is_multicast


def error_text(fault: Any) -> str:
    """A server's own sentence, bounded and in one line; "" where it says none."""
    words = fault.get("message") if isinstance(fault, dict) else fault
    text = "" if words is None else " ".join(str(words).split())
    return "".join(c for c in text if c.isprintable())[:300]


def reason_of(problem: Exception) -> str:
    """Words for a fault of the network."""
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return first_reason(problem)[:120]
