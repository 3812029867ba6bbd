"""Departed: answers to clients that have gone are dropped without a word.

A client may leave at any moment, and the server library then raises what looks like a failure of ours, with a traceback
of seventy lines in the log: anybody could fill the disk with them.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSED = "the handler is closed"
"""What uvloop says of a write to a connection that has ended; it has no class of its own for it."""


class Unfinished(logging.Filter):
    """Keeps uvicorn's complaint of an answer that ends before the server knows that its client has gone out of the log.

    A client that closes its half of a connection and reads nothing leaves the server in doubt for as long as it likes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        return "returned without completing response" not in record.getMessage()


class Departed:
    """Stands outside of everything else of the application."""

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
                # The server learns of it in its loop's next turn.
                await asyncio.sleep(0)

        await self.app(scope, receive, sent)
