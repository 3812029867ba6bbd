"""Updates that arrive over HTTP: checks them, sends them to Kafka, and says when they are visible.

In: a request body (JSON lines, a JSON array or an Arrow stream) and the source that it is for.
Out: messages in the source's topic, and a read token, with which a client can ask whether its updates are visible.
Read first: parse.py, then delivery.py and read_tokens.py.
"""
