"""Drops answers to clients that have disconnected, without logging an error.

A client may disconnect at any moment. The server library then raises an error that looks like a failure of the sidecar,
with a traceback of seventy lines in the log. Clients could fill the disk with such tracebacks.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSED = "the handler is closed"
"""uvloop's message for a write to a closed connection; it has no exception class for this case."""


class Unfinished(logging.Filter):
    """Filters uvicorn's complaint about an answer that ends before the server knows that its client has disconnected.

    A client that closes its half of a connection and reads nothing can leave the server in doubt indefinitely.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        return "returned without completing response" not in record.getMessage()


class Departed:
    """The outermost middleware of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = False

        async def sent(message: Message) -> None:
            nonlocal gone
            if gone:
                return
            try:
                await send(message)
            except (RuntimeError, ConnectionError) as error:
                if isinstance(error, RuntimeError) and _CLOSED not in str(error):
                    raise
                gone = True
                # The server notices the disconnection in the next turn of its loop.
                await asyncio.sleep(0)

        await self.app(scope, receive, sent)
