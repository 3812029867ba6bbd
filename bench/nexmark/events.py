"""NEXMark's events: the persons, auctions and bids of an auction site, after the generator of Apache Beam's suite.

Of fifty events one is a new person, three are new auctions, and 46 are bids. Event i comes i / rate seconds after
BEGIN, plus less than that step, so times rise strictly and use all digits of a nanosecond. Half of the bids go to one
hot auction of the last hundred, three quarters of them come from one hot bidder, and three quarters of the auctions are
of one hot seller. An auction ends within twice the time in which a hundred auctions begin.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
HERE = Path(__file__).resolve().parent
TABLES = (HERE / "tables.sql").read_text("utf-8")
QUERIES = {int(one.stem[1:]): one.read_text("utf-8").strip() for one in sorted(HERE.glob("q*.sql"))}
LEFT_OUT = {10: "it writes to the files of another system, partitioned by time; as rows, it is query 0"}

PERSON, AUCTION, TOGETHER = 1, 3, 50
BEGIN = 1_436_918_400 * 10**9
"""2015-07-15, the first instant of Beam's suite."""
FIRST = 1_000
"""The first number of a person and of an auction."""
ACTIVE_PEOPLE, IN_FLIGHT, HOT = 1_000, 100, 100
CATEGORIES = (10, 11, 12, 13, 14)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
SURNAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
STAMP = pa.timestamp("ns", "UTC")
TYPES = {
    "person": pa.schema(
        [("id", pa.int64()), *((one, pa.string()) for one in ("name", "email_address", "credit_card", "city", "state")),
         ("date_time", STAMP), ("extra", pa.string())]
    ),
    "auction": pa.schema(
        [("id", pa.int64()), ("item_name", pa.string()), ("description", pa.string()), ("initial_bid", pa.int64()),
         ("reserve", pa.int64()), ("date_time", STAMP), ("expires", STAMP), ("seller", pa.int64()),
         ("category", pa.int64()), ("extra", pa.string())]
    ),
    "bid": pa.schema(
        [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()),
         ("url", pa.string()), ("date_time", STAMP), ("extra", pa.string())]
    ),
    "side_input": pa.schema([("key", pa.int64()), ("value", pa.string())]),
}  # fmt: skip
TIME = {name: schema.get_field_index("date_time") for name, schema in TYPES.items() if name != "side_input"}
"""The place of the event time in each table."""


@dataclass
class Events:
    """The rows of the four tables; those of persons, auctions and bids in the order of their times."""

    person: list[Row] = field(default_factory=list)
    auction: list[Row] = field(default_factory=list)
    bid: list[Row] = field(default_factory=list)
    side_input: list[Row] = field(default_factory=lambda: [(key, f"side {key}") for key in range(10_000)])

    def table(self, name: str) -> pa.Table:
        """The rows of a table for Parquet."""
        rows: list[Row] = getattr(self, name)
        columns = list(zip(*rows, strict=True)) or [()] * len(TYPES[name])
        arrays = [pa.array(values, one.type) for values, one in zip(columns, TYPES[name], strict=True)]
        return pa.Table.from_arrays(arrays, schema=TYPES[name])


def events(count: int, rate: int, seed: int = 1, first: int = 0) -> Events:
    """Events first, first + 1, … of a run with `rate` events a second, as many as `count`."""
    made = Events()
    step = 10**9 // rate
    for number in range(first, first + count):
        choose = random.Random(seed * 1_000_003 + number)
        time = BEGIN + number * step + choose.randrange(step)
        group, place = divmod(number, TOGETHER)
        if place < PERSON:
            made.person.append(_person(choose, FIRST + group, time))
        elif place < PERSON + AUCTION:
            made.auction.append(_auction(choose, FIRST + group * AUCTION + place - PERSON, FIRST + group, time, step))
        else:
            made.bid.append(_bid(choose, FIRST + group * AUCTION + AUCTION - 1, FIRST + group, time))
    return made


def _person(choose: random.Random, number: int, time: int) -> Row:
    name = f"{choose.choice(NAMES)} {choose.choice(SURNAMES)}"
    mail = f"{_text(choose, 7)}@{_text(choose, 5)}.com"
    card = " ".join(f"{choose.randrange(10_000):04}" for _ in range(4))
    return number, name, mail, card, choose.choice(CITIES), choose.choice(STATES), time, _text(choose, 40)


def _auction(choose: random.Random, number: int, last_person: int, time: int, step: int) -> Row:
    ends = time + 1 + choose.randrange(2 * IN_FLIGHT * TOGETHER // AUCTION * step)
    seller = last_person // HOT * HOT if choose.random() < 0.75 else _active(choose, last_person)
    begin = _price(choose)
    reserve = begin + _price(choose)
    words = _text(choose, 20), _text(choose, 60)
    return (number, *words, begin, reserve, time, ends, max(seller, FIRST), choose.choice(CATEGORIES),
            _text(choose, 30))  # fmt: skip


def _bid(choose: random.Random, last_auction: int, last_person: int, time: int) -> Row:
    if choose.random() < 0.5:
        auction = max(FIRST, last_auction // HOT * HOT)
    else:
        auction = choose.randint(max(FIRST, last_auction - IN_FLIGHT), last_auction)
    bidder = last_person // HOT * HOT + 1 if choose.random() < 0.75 else _active(choose, last_person)
    path = f"https://www.nexmark.com/{_text(choose, 3)}/{_text(choose, 3)}/{_text(choose, 3)}/item.htm?query=1"
    channel = choose.choice(CHANNELS)
    if choose.random() < 0.5:
        other = choose.randrange(10_000)
        channel, path = f"channel-{other}", path + (f"&channel_id={other}" if choose.random() < 0.9 else "")
    return auction, bidder, _price(choose), channel, path, time, _text(choose, 30)


def _active(choose: random.Random, last_person: int) -> int:
    return choose.randint(max(FIRST, last_person - ACTIVE_PEOPLE), last_person)


def _price(choose: random.Random) -> int:
    """Between 1 and a million, as many of each size, in hundredths."""
    return round(10 ** (choose.random() * 6) * 100)


def _text(choose: random.Random, most: int) -> str:
    """Letters, between half of the length and all of it."""
    return "".join(choose.choices(LETTERS, k=choose.randint(most // 2, most)))
