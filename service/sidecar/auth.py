"""Decides what each request to a sidecar may do.

A request carries a bearer token or none. Tokens come from the environment or from files. Each token has a scope: `read`
allows reading answers; `admin` also allows reading settings, sending updates, and any other change. `http.anonymous`
sets what a request without a token may do. By default that is everything if the sidecar listens on loopback only and
has no tokens, and nothing otherwise.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from vernier.service.config.loopback import is_loopback
from vernier.service.config.sections import Http
from vernier.storage.errors import CallerError

Scope = Literal["none", "read", "admin"]

LEAST_LENGTH = 16
_RANK: dict[Scope, int] = {"none": 0, "read": 1, "admin": 2}
_TOKEN = re.compile(r"[!-+\--~]+")
"""Visible ASCII without the comma, which separates tokens."""


class BadTokens(CallerError):
    """A token, or a file of tokens, cannot be used."""

    message = "{setting}: {problem}"
    setting: str
    problem: str


class OpenToOthers(CallerError):
    """The sidecar would answer everyone who can reach it, and no setting says that it should."""

    message = (
        "http.host {host} is not loopback and there is no token: every client could read all answers; set "
        "VERNIER_HTTP__READ_TOKENS or http.read_tokens_file, or set http.anonymous=read if that is intended"
    )
    host: str


def includes(given: Scope, needed: Scope) -> bool:
    """Whether the scope `given` includes the scope `needed`."""
    return _RANK[given] >= _RANK[needed]


@dataclass(frozen=True, slots=True)
class Access:
    """The scopes of tokens.

    read, admin: SHA-256 digests of tokens. anonymous: the scope of requests without a token. local: only this machine
    can reach the sidecar, so a browser's request that names another host is refused.
    """

    read: tuple[bytes, ...] = ()
    admin: tuple[bytes, ...] = ()
    anonymous: Scope = "admin"
    local: bool = True

    @staticmethod
    def of(http: Http) -> Access:
        """Build it from the settings. Raises BadTokens, OpenToOthers."""
        read = _digests("read_tokens", http.read_tokens, http.read_tokens_file)
        admin = _digests("admin_tokens", http.admin_tokens, http.admin_tokens_file)
        local, known = is_loopback(http.host), bool(read or admin)
        if http.anonymous is None and not local and not known:
            raise OpenToOthers(host=http.host)
        return Access(read, admin, http.anonymous or ("none" if known else "admin"), local)

    @property
    def wide_open(self) -> bool:
        """Whether anyone on another machine may make changes."""
        return not self.local and self.anonymous == "admin"

    def scope(self, token: str | None) -> Scope | None:
        """The scope of a token, None for an unknown token. Compares with all tokens in constant time."""
        if token is None:
            return self.anonymous
        digest = sha256(token.encode("utf-8", "surrogateescape")).digest()
        is_read, is_admin = _any(digest, self.read), _any(digest, self.admin)
        return "admin" if is_admin else "read" if is_read else None


def _any(digest: bytes, known: Iterable[bytes]) -> bool:
    found = False
    for one in known:
        found |= hmac.compare_digest(digest, one)
    return found


def _digests(name: str, given: SecretStr | None, file: Path | None) -> tuple[bytes, ...]:
    tokens: list[str] = []
    if given is not None:
        tokens += _checked(f"http.{name}", given.get_secret_value().split(","))
    if file is not None:
        setting = f"http.{name}_file"
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no text"
            raise BadTokens(setting=setting, problem=f"{str(reason).lower()}: {file}") from error
        tokens += _checked(setting, [line for line in lines if not line.lstrip().startswith("#")])
    return tuple(sha256(token.encode()).digest() for token in dict.fromkeys(tokens))


def _checked(setting: str, texts: Sequence[str]) -> list[str]:
    tokens = [text.strip() for text in texts if text.strip()]
    if not tokens:
        raise BadTokens(setting=setting, problem="it contains no token; remove the setting, or add a token")
    for number, token in enumerate(tokens, start=1):
        if not _TOKEN.fullmatch(token):
            raise BadTokens(setting=setting, problem=f"token {number} has characters other than visible ASCII")
        if len(token) < LEAST_LENGTH:
            short = f"token {number} has {len(token)} characters but needs {LEAST_LENGTH}"
            raise BadTokens(setting=setting, problem=f"{short}; `openssl rand -hex 32` makes a good one")
    return tokens
