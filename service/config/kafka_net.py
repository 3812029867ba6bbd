"""How clients of the kafka package connect: a broker that does not answer leaves time to ask the others.

The package gives the first address that it tries, one of chance, all of the time that it has for the first answer, and
it does not ask another broker when the one that it chose for a request cannot be reached. So while one of three brokers
is cut off, each third client fails, and a start makes several of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.errors import KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

_TIMES = {"socket_connection_setup_timeout_ms": 2_000, "socket_connection_setup_timeout_max_ms": 10_000}
"""How long a broker may take until it has answered for the first time; twice as long after each failure."""
_UNREACHED = (KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError)
"""Raised by a connection that is not there; no request has been sent then."""


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """The connections of one client to its brokers."""

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        known = self.cluster.bootstrap_brokers
        self.cluster.bootstrap_brokers = lambda: self._least_failed(known())

    def _least_failed(self, brokers: Iterable[Any]) -> list[Any]:
        """Those that have failed least often, of which the package takes one by chance."""
        failures = [(self._backoff.get(one.node_id, (0,))[0], one) for one in brokers]
        least = min(times for times, _ in failures)
        return [one for times, one in failures if times == least]

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **about: Any) -> Any:
        """A new or known connection. One that has not answered after its time has failed, however much is left."""
        most = self.socket_connection_setup_timeout_ms(node_id)
        return super().get_connection(node_id, timeout_ms=min(most, timeout_ms or most), **about)

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Future:
        """Send a request; without a node, to one that can be reached."""
        if node_id is not None:
            return super().send(request, node_id=node_id, request_timeout_ms=request_timeout_ms)
        return self.call_soon(self._send_to_any, request, request_timeout_ms)

    async def _send_to_any(self, request: Any, request_timeout_ms: float | None) -> Any:
        failed: Exception = NodeNotReadyError("no broker can be reached")
        for _ in range(1 + len(self.cluster.brokers())):
            try:
                connection = await self.get_connection(self.least_loaded_node())
            except _UNREACHED as error:
                failed = error
                continue
            return await connection.send_request(request, request_timeout_ms=request_timeout_ms)
        raise failed


class NetClient(KafkaNetClient):  # type: ignore[misc]
    """What the setting `kafka_client` of the package's clients takes."""

    def __init__(self, **configs: Any) -> None:
        net = NetworkSelector(**configs)
        super().__init__(net, Connections(net, **configs, **_TIMES), **configs)
