"""Signing in: a file of names and password hashes, tries that are counted, sessions that end.

A line of the file is ``name:scrypt$n$r$p$salt$hash`` (RFC 7914, salt and hash in hexadecimal). The file is read again
when it changes: who is taken out of it, or gets another password, is signed out.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cachetools import TTLCache

from decoders.folders import write_bytes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
HASH = re.compile(r"scrypt\$(\d{1,7})\$(\d{1,7})\$(\d{1,7})\$(?:[0-9a-f]{2}){16,64}\$(?:[0-9a-f]{2}){16,64}", re.ASCII)
MIN_PASSWORD, MAX_PASSWORD = 8, 200  # characters
COST = (2**15, 8, 1)  # scrypt's n, r, p: 32 MiB and about a tenth of a second
COST_LIMIT = (2**17, 16, 4)  # of a line in the file
SESSION_S = 12 * 3600.0
MAX_SESSIONS = 5000
TRIES_S = 15 * 60.0  # for so long a failed try counts
MAX_KEYS = 20_000


def hash_password(password: str, *, cost: tuple[int, int, int] = COST, salt: bytes = b"") -> str:
    """A password as it stands in the file.

    >>> kept = hash_password("open sesame", cost=(2, 1, 1))
    >>> matches("open sesame", kept), matches("open says me", kept)
    (True, False)
    """
    n, r, p = cost
    salt = salt or secrets.token_bytes(16)
    key = hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + (1 << 20), dklen=32)
    return f"scrypt${n}${r}${p}${salt.hex()}${key.hex()}"


def matches(password: str, password_hash: str) -> bool:
    """True for the password behind a hash; takes the same time for right and wrong ones."""
    _, n, r, p, salt, _ = password_hash.split("$")
    new_hash = hash_password(password, cost=(int(n), int(r), int(p)), salt=bytes.fromhex(salt))
    return hmac.compare_digest(new_hash, password_hash)


def _well_formed(kept: str) -> bool:
    parts = HASH.fullmatch(kept)
    if parts is None:
        return False
    cost = [int(part) for part in parts.groups()]
    within_limits = all(1 <= part <= limit for part, limit in zip(cost, COST_LIMIT, strict=True))
    return within_limits and cost[0].bit_count() == 1 < cost[0]  # a power of 2


def read_users(path: Path) -> dict[str, str]:
    """Names and hashes of a file. Raises ValueError with one sentence, naming the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not text"
        raise ValueError(
            f"the users file {path} cannot be read ({reason.lower()}): make it with “specviz users add {path} NAME”"
        ) from None
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, password_hash = line.strip().partition(":")
        if not NAME.fullmatch(name) or not _well_formed(password_hash):
            raise ValueError(
                f"line {number} of {path} is not NAME:HASH: take it out and add the user with “specviz users add”"
            )
        if name in users:
            raise ValueError(f"line {number} of {path} names {name} a second time: keep one of them")
        users[name] = password_hash
    return users


def write_users(path: Path, users: dict[str, str]) -> None:
    """Replace the file, whole or not at all; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(
        path, "".join(f"{name}:{password_hash}\n" for name, password_hash in users.items()).encode(), private=True
    )


def checked_name(name: str) -> str:
    """The name. Raises ValueError where it is not one that a user may have."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name[:60]!r} cannot be a user's name: use 1 to 40 letters, digits, dots, dashes and underscores"
        )
    return name


def checked_password(password: str) -> str:
    """The password. Raises ValueError where it is too short or too long."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise ValueError(
            f"the password has {len(password)} characters and {MIN_PASSWORD} to {MAX_PASSWORD} are needed: "
            "choose another one"
        )
    return password


class Tries:
    """Failed tries of the last 15 minutes: after some there is a wait, twice as long every time.

    Written by hand: libraries of request limits count requests, and know no wait that grows with every failure.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: TTLCache[tuple[str, str], tuple[int, float]] = TTLCache(MAX_KEYS, TRIES_S, clock)  # count, last
        self._lock = threading.Lock()

    def _keys(self, name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
        """Counters of a try, and how many are free: one's own typing errors; guessing by one address; at one name."""
        return ((name, address), 5), (("", address), 20), ((name, ""), 50)

    def wait_s(self, name: str, address: str) -> float:
        """Seconds until the next try is allowed; 0 if it is now."""
        current_time, longest = self._clock(), 0.0
        with self._lock:
            for key, free in self._keys(name, address):
                count, last = self._failed.get(key, (0, 0.0))
                if count >= free:
                    longest = max(longest, last + min(TRIES_S, 2.0 ** min(count - free + 1, 10)) - current_time)
        return longest

    def on_failure(self, name: str, address: str) -> None:
        with self._lock:
            for key, _ in self._keys(name, address):
                self._failed[key] = self._failed.get(key, (0, 0.0))[0] + 1, self._clock()

    def on_success(self, name: str, address: str) -> None:
        with self._lock:
            self._failed.pop((name, address), None)


class Users:
    """The users of a server, and those who are signed in: ``sign_in`` gives a token for the cookie; only its hash is
    held here.

    Sessions are written by hand: what Starlette's SessionMiddleware signs into a cookie stays good until it ends, and
    could be taken back neither by signing out nor by another password.
    """

    def __init__(
        self, path: Path, *, session_s: float = SESSION_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.session_s = path, session_s
        self.tries = Tries(clock)
        self._lock = threading.Lock()
        self._hashing = threading.Lock()  # one at a time: 32 MiB each
        self._sessions: TTLCache[str, tuple[str, str]] = TTLCache(MAX_SESSIONS, session_s, clock)  # name, hash
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[str, str] = {}
        self._nobody = hash_password(secrets.token_hex(8))
        self._read()
        if not self._users:
            raise ValueError(f"the users file {path} names nobody: add somebody with “specviz users add {path} NAME”")

    def _read(self) -> dict[str, str]:
        info = self.path.stat() if self.path.exists() else None
        stamp = (info.st_mtime_ns, info.st_size, info.st_ino) if info else (0, 0, 0)
        if stamp != self._stamp:
            self._users, self._stamp = read_users(self.path), stamp
        return self._users

    def users(self) -> dict[str, str]:
        """The users of the file as it is now; as it was, where it cannot be read any more."""
        with self._lock, contextlib.suppress(ValueError, OSError):
            self._read()
        return self._users

    def readable_by_others(self) -> bool:
        return os.name == "posix" and bool(self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))

    def sign_in(self, name: str, password: str, address: str) -> str:
        """A session's token, or "" where name and password do not belong together. Look at ``tries`` before."""
        password_hash = self.users().get(name)
        with self._hashing:  # an unknown name takes as long as a wrong password
            right = matches(password[: MAX_PASSWORD + 1], password_hash or self._nobody)
        if password_hash is None or not right:
            self.tries.on_failure(name[:80], address)
            return ""
        self.tries.on_success(name, address)
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_digest(token)] = name, password_hash
        return token

    def who(self, token: str) -> str:
        """The name behind a token; "" where there is none (any more)."""
        users, key = self.users(), _digest(token)
        with self._lock:
            name, password_hash = self._sessions.get(key, ("", ""))
            if name and not hmac.compare_digest(users.get(name, ""), password_hash):  # taken out, or another password
                del self._sessions[key]
                return ""
        return name

    def sign_out(self, token: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(token), None)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
