"""Writes a project: `vernier new NAME` makes a folder with a program, updates, a test, settings and a compose file."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from pathlib import Path

from vernier.storage.errors import CallerError

_PROGRAM = """\
import vernier as vn


class Sale(vn.Schema):
    shop: vn.Int64
    cents: vn.Int64


app = vn.App("{name}")
sales = app.source("sales", Sale)
totals = sales.group_by("shop").agg(sales=vn.count(), cents=vn.sum("cents"))
app.view("totals", totals, key="shop")
"""

_UPDATES = """\
{"input":"sales","data":[1,250],"time":10}
{"input":"sales","data":[2,990],"time":20}
{"input":"sales","data":{"shop":1,"cents":400},"time":20}
{"input":"sales","data":[2,990],"time":30,"diff":-1}
{"input":"sales","data":[2,890],"time":30}
"""

_TEST = '''\
"""Run with `pytest`. The fixture `vernier` runs a program in this process, without Spark or Kafka."""


def test_a_sale_that_is_corrected(vernier):
    t = vernier("{stem}.py")
    t.given("sales", """
        shop  cents  time  diff
        1     250    10
        2     990    20
        2     990    30    -1
        2     890    30
    """)
    t.finish()
    t.expect("totals", """
        shop  sales  cents  time  diff
        1     1      250    10    +1
        2     1      990    20    +1
        2     1      990    30    -1
        2     1      890    30    +1
    """)


def test_the_totals_as_of_a_time(vernier):
    t = vernier("{stem}.py")
    t.insert("sales", (1, 250), at=10)
    t.insert("sales", (1, 400), at=20)
    t.advance(30)
    assert t.rows("totals", at=15) == [(1, 1, 250)]
    assert t.rows("totals") == [(1, 2, 650)]
'''

_SETTINGS = """\
# Settings of the service: `vernier config` lists all of them, `vernier config KEY` explains one.
program: {stem}.py
kafka:
  bootstrap: 127.0.0.1:19092
  embedded: true          # starts a broker for trials; with brokers of your own: false, and their addresses above
sources:
  sales:
    topic: sales
    format: vernier
    clock: arrival        # data times are the brokers' arrival times; event: those in the messages
http:
  port: 8642
state:
  path: .run/state
"""

_COMPOSE = """\
# The service with a broker in containers: `docker compose up`, then http://localhost:8642
# `make image` in a checkout of Vernier builds the image vernier:{version}. Everything listens on loopback alone.
name: {name}

services:
  kafka:
    image: apache/kafka:4.1.0
    restart: unless-stopped
    environment:
      KAFKA_NODE_ID: 1
      KAFKA_PROCESS_ROLES: broker,controller
      KAFKA_LISTENERS: PLAINTEXT://:9092,CONTROLLER://:9093
      KAFKA_ADVERTISED_LISTENERS: PLAINTEXT://kafka:9092
      KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@localhost:9093
      KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1
      KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1
    volumes: [kafka:/var/lib/kafka/data]
    healthcheck:
      test: ["CMD", "/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server", "localhost:9092"]
      interval: 5s
      timeout: 10s
      retries: 24

  vernier:
    image: vernier:{version}
    restart: unless-stopped
    depends_on:
      kafka:
        condition: service_healthy
    command: [up, /project/{stem}.py, --config, /project/settings.yaml]
    environment:
      VERNIER_KAFKA__BOOTSTRAP: kafka:9092
      VERNIER_KAFKA__EMBEDDED: "false"
      VERNIER_HTTP__HOST: 0.0.0.0
      # To send updates over HTTP, a token is needed: VERNIER_HTTP__ADMIN_TOKENS.
      VERNIER_HTTP__ANONYMOUS: read
    ports: ["127.0.0.1:8642:8642"]
    volumes:
      - .:/project:ro
      - state:/var/lib/vernier
    stop_grace_period: 60s

volumes:
  kafka:
  state:
"""

_README = """\
# {name}

| command, in this folder | what it does |
| --- | --- |
| `pytest` | tests the program, without Spark or Kafka |
| `vernier replay {stem}.py --updates {stem}.jsonl --rows-at 30` | shows the views' rows at a data time |
| `vernier up {stem}.py --config settings.yaml` | runs the program as a service, with a broker for trials |
| `echo '[1, 250]' \\| vernier send - --source sales --wait 60` | sends it a row |
| `vernier query totals`, `vernier watch totals` | show its rows, and every change |
| `docker compose up` | runs the service and a broker in containers |
"""


class CannotMake(CallerError):
    """A folder of that name exists already, or the name is not valid."""

    message = "cannot make {file}: {reason}"
    file: str
    reason: str


def new_project(path: str) -> list[Path]:
    """Write the folder PATH with all files of a project; returns their paths. Nothing that exists is changed. Raises
    CannotMake.
    """
    folder = Path(path.removesuffix(".py"))
    stem = folder.name
    name = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise CannotMake(file=str(folder), reason="a program's name begins with a letter, as in `vernier new sales`")
    words = {"{name}": name, "{stem}": stem, "{version}": importlib.metadata.version("vernier")}
    files = {
        f"{stem}.py": _PROGRAM,
        f"{stem}.jsonl": _UPDATES,
        f"test_{stem.replace('-', '_')}.py": _TEST,
        "settings.yaml": _SETTINGS,
        "compose.yaml": _COMPOSE,
        "README.md": _README,
    }
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise CannotMake(file=str(folder), reason="it exists already; choose another name") from error
    except OSError as error:
        raise CannotMake(file=str(folder), reason=_reason(error)) from error
    try:
        for file, template in files.items():
            for word, value in words.items():
                template = template.replace(word, value)
            (folder / file).write_text(template, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotMake(file=str(folder), reason=_reason(error)) from error
    return [folder / file for file in files]


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
