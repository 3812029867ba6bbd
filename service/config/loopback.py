"""Which addresses only this machine can reach."""

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address (with or without brackets). Of names, those that the resolver
    must give a loopback address count: `localhost` and what ends in `.localhost` (RFC 6761)."""
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
