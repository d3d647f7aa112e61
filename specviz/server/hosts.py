"""The names that a server answers to, and the pages whose requests it takes.

A page of another site reaches a server of this machine in two ways: its own name is made to lead here (DNS rebinding),
so that the browser takes both for one origin; or it sends here under its own origin. ``Hosts`` refuses the first by the
request's Host, ``is_foreign`` tells the second by Sec-Fetch-Site and Origin. Starlette's TrustedHostMiddleware looks at
the first of several hosts, and takes a name for an address.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ALL_ADDRESSES = ("", "0.0.0.0", "::")  # of a machine: a server that listens on one of these listens on all
ANY_HOST = "*"
HUB = "https://huggingface.co"  # shows a Space in a frame
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(\d{1,5}))?", re.ASCII)
MOST_NAME = 253  # characters, RFC 1035
PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class Hosts:
    """The names a server is reached by, at any port: a tunnel or a container may have another one.

    ``addresses``: it answers to every IP address too. No name leads to one, so that none can be rebound. ``framed_by``
    are the origins whose pages may show it in a frame.

    >>> Hosts().refusal(Headers({"host": "127.0.0.1:7860"}))
    ''
    >>> print(Hosts().refusal(Headers({"host": "evil.com"})))
    This server answers to localhost, 127.0.0.1 and [::1], and was asked for “evil.com”: start it with --allow-host \
evil.com if that is its name.
    """

    names: tuple[str, ...] = LOOPBACK
    addresses: bool = False
    framed_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, host: str, extra_hosts: Sequence[str] = ()) -> Hosts:
        """The names of a server that listens on ``host``, and those it is ``extra_hosts`` besides. On all addresses of
        a machine these are the machine's name and that of a Hugging Face Space, too. Raises ValueError with one
        sentence.
        """
        everywhere = host in ALL_ADDRESSES
        names, space = [*LOOPBACK, *map(_name, extra_hosts)], os.environ.get("SPACE_HOST", "").lower()
        if everywhere:
            host_name = socket.gethostname().lower()
            names += [name for name in (host_name, f"{host_name}.local", space) if name]
        else:
            names.append(f"[{host.lower()}]" if ":" in host else host.lower())
        return cls(tuple(dict.fromkeys(names)), everywhere, (HUB,) if everywhere and space else ())

    def refusal(self, headers: Headers) -> str:
        """The reason why a request is not for this server, in a sentence; "" where it is. What a proxy says the host
        was (X-Forwarded-Host) counts as much: Gradio makes addresses of it.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return f"A request names one host, and this names {len(hosts)}: send one Host header."
        hosts += [host.strip() for text in headers.getlist("x-forwarded-host") for host in text.split(",")]
        for text in hosts:
            if not (parts := HOST.fullmatch(text.lower())):
                return "What was sent as the Host is none: it is a name or an address, with a port or without."
            if not self._answers(name := parts[1]):
                *first, last = (*self.names, "any IP address") if self.addresses else self.names
                known_hosts = f"{', '.join(first)} and {last}"
                host_text = name if len(name) <= MOST_NAME else f"{name[:MOST_NAME]} …"
                return (
                    f"This server answers to {known_hosts}, and was asked for “{host_text}”: start it with "
                    f"--allow-host {host_text} "
                    "if that is its name."
                )
        return ""

    def _answers(self, name: str) -> bool:
        return ANY_HOST in self.names or name in self.names or (self.addresses and _is_address(name))


def is_foreign(headers: Headers, scheme: str) -> bool:
    """True for a request that a page of another origin sent: another port of the same host is one. Browsers say so
    themselves (Sec-Fetch-Site, Fetch Metadata §2.4); to a server that is neither local nor behind TLS they send the
    Origin alone. Programs send neither.
    """
    if sites := headers.getlist("sec-fetch-site"):
        return any(site not in ("same-origin", "none") for site in sites)
    host = headers.get("host", "").lower()
    return any(not _is_origin_of(origin, host, scheme) for origin in headers.getlist("origin"))


def _is_origin_of(origin: str, host: str, scheme: str) -> bool:
    """
    >>> _is_origin_of("http://localhost:7860", "localhost:7860", "http"), _is_origin_of("null", "localhost", "http")
    (True, False)
    >>> _is_origin_of("https://a.org", "a.org:443", "http"), _is_origin_of("http://a.org", "a.org", "https")
    (True, False)
    """
    origin_scheme, _, place = origin.lower().partition("://")
    if origin_scheme not in PORTS or (
        scheme == "https" and origin_scheme == "http"
    ):  # TLS may end at a proxy that does not say so
        return False
    return place.removesuffix(f":{PORTS[origin_scheme]}") == host.removesuffix(f":{PORTS[origin_scheme]}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    """A name as requests give it. Raises ValueError where it is none."""
    if host == ANY_HOST:
        return ANY_HOST
    name = host.strip().lower()
    name = f"[{name}]" if ":" in name and _is_address(name) else name
    parts = HOST.fullmatch(name)
    if parts is None or parts[2]:
        raise ValueError(
            f"--allow-host {host[:80]!r} is no host: give a name or an address alone, such as specviz.example.org, "
            "or “*” for any"
        )
    return name
