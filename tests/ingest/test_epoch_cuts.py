"""Whatever the cuts into epochs and the spread over workers: the same updates enter, the same messages are refused."""

import random
from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.log import EDGES, ROOTS, Entry, Record, Service, Topics, native, progress, refusals
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Ingestion

MS = 1_000_000
BEAT = "app.heartbeat"
EXAMPLES = max(60, settings().max_examples // 2)

SOURCES = {"edges": EDGES, "roots": ROOTS, "left": ROOTS, "right": ROOTS}
CONFIG = IngestionConfig(
    {
        "edges": SourceConfig("edges", "vernier", "event", idle_timeout_ms=None),
        "roots": SourceConfig("roots", "json", "arrival"),
        "left": SourceConfig("both", "json", "event", idle_timeout_ms=None),
        "right": SourceConfig("both", "json", "event", idle_timeout_ms=None, rounding="millisecond"),
    },
    {"edges": 3, "roots": 2, "both": 1},
    BEAT,
)


@dataclass
class Producers:
    """Writes a log of all kinds of messages, keeping every promise, and knows what must come of it."""

    rng: random.Random

    def __post_init__(self) -> None:
        self.log = Topics()
        self.expected: Counter[Entry] = Counter()
        self.promised = {("edges", 0): 0, ("edges", 1): 0, ("edges", 2): 0, ("both", 0): 0}
        self.stamps: Counter[int] = Counter()

    def write(self, messages: int) -> None:
        """Append messages, and at the end promises that complete everything."""
        for _ in range(messages):
            kind = self.rng.choice([self.edges, self.edges, self.roots, self.both, self.progress, self.bad, self.beat])
            self.log.ms += self.rng.choice([0, 0, 1, 7])
            kind()
        for topic, partition in self.promised:
            done = progress(None) if topic == "edges" else f'{{"resolved":"{2**63 - 1}"}}'
            self.log.append(topic, partition, done)

    def edges(self) -> None:
        partition = self.rng.randrange(3)
        least = self.promised["edges", partition]
        updates = [
            (
                (self.rng.randrange(3), self.rng.randrange(3)),
                self.rng.randrange(least, least + 60),
                self.rng.choice([1, -1]),
            )
            for _ in range(self.rng.randrange(4))
        ]
        self.log.append("edges", partition, native(updates))
        self.expected.update(("edges", row, time, diff) for row, time, diff in updates)

    def roots(self) -> None:
        partition, node = self.rng.randrange(2), self.rng.randrange(3)
        self.log.append("roots", partition, f'{{"node":{node},"time":1}}')
        stamp = max(self.stamps[partition] + 1, self.log.ms * MS)
        self.stamps[partition] = stamp
        self.expected["roots", (node,), stamp, 1] += 1

    def both(self) -> None:
        name, node = self.rng.choice(["left", "right"]), self.rng.randrange(3)
        time = self.promised["both", 0] + self.rng.randrange(2 * MS)
        self.log.append("both", 0, f'{{"input":"{name}","data":[{node}],"time":"{time}"}}')
        self.expected[name, (node,), time if name == "left" else -(-time // MS) * MS, 1] += 1

    def progress(self) -> None:
        place = self.rng.choice(list(self.promised))
        self.promised[place] += self.rng.randrange(40 if place[0] == "edges" else 2 * MS)
        upper = self.promised[place]
        self.log.append(*place, progress(upper) if place[0] == "edges" else f'{{"resolved":{upper}}}')

    def bad(self) -> None:
        topic, partitions = self.rng.choice([("edges", 3), ("roots", 2), ("both", 1), ("nodes", 2)])
        text = self.rng.choice(["", "[", "{}", '{"v":1,"t":"0","u":[[[1],"1",1]]}', '{"input":"up","data":[1]}'])
        self.log.append(topic, self.rng.randrange(partitions), text)

    def beat(self) -> None:
        self.log.append(BEAT, 0, b"beat")

    def last_beats(self) -> list[Record]:
        """Two heartbeats late enough for everything before them to be final."""
        return [self.log.append(BEAT, 0, b"beat", later_ms=2 * MS) for _ in range(2)]


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 3), st.integers(1, 12))
def test_cuts_and_workers_change_nothing(seed: int, messages: int, workers: int, epochs: int) -> None:
    """Epochs are cut at moments of the broker, as offsets are fixed; some records come again once consumed."""
    rng = random.Random(seed)
    producers = Producers(rng)
    producers.write(messages)
    records = producers.log.records
    moments = sorted(rng.randint(0, len(records)) for _ in range(epochs - 1))
    cut, whole = Service(Ingestion(SOURCES, CONFIG), workers), Service(Ingestion(SOURCES, CONFIG))
    for start, stop in zip([0, *moments], [*moments, len(records)]):
        again = rng.sample(records[:start], min(start, rng.randrange(3)))
        cut.epoch([*records[start:stop], *again], rng)
    whole.epoch(records)
    for beat in producers.last_beats():
        cut.epoch([beat], rng)
        whole.epoch([beat])
    assert cut.entered == whole.entered == producers.expected
    assert refusals(cut.letters) == refusals(whole.letters)
    assert not any(letter.reason == "late" for letter in cut.letters)
    assert cut.counters["skewed"] == 0
    assert cut.frontiers == sorted(cut.frontiers)
    assert cut.waiting == 0
    assert cut.offsets == whole.offsets


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 3))
def test_promises_hold_however_far_each_partition_is_read(seed: int, messages: int, workers: int) -> None:
    """Event clocks need no common moment: each partition may be read at a pace of its own."""
    rng = random.Random(seed)
    producers = Producers(rng)
    producers.roots = producers.edges  # type: ignore[method-assign]
    producers.write(messages)
    config = IngestionConfig(
        {name: CONFIG.sources[name] for name in ("edges", "left", "right")}, CONFIG.partitions, BEAT
    )
    runs = Service(Ingestion({name: SOURCES[name] for name in config.sources}, config), workers)
    left: dict[tuple[str, int], list[Record]] = {}
    for record in producers.log.records:
        left.setdefault((record.topic, record.partition), []).append(record)
    while any(left.values()):
        records = []
        for place, waiting in left.items():
            count = rng.randint(0, min(len(waiting), 5))
            records += waiting[:count]
            left[place] = waiting[count:]
        runs.epoch(records, rng)
    assert runs.entered == producers.expected
    assert not any(letter.reason == "late" for letter in runs.letters)
    assert runs.frontiers == sorted(runs.frontiers)
