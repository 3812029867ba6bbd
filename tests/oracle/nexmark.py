"""NEXMark's queries in plain Python: dicts and loops over the rows that are there, with no code of ours.

Rows are tuples in the order of the tables (bench/nexmark/tables.sql), and instants nanoseconds. Each function returns
the rows of its query, copies included.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]
SECOND = 10**9
EUROS = Decimal("0.908")
NUMBERS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


@dataclass(frozen=True)
class Site:
    """The rows of the four tables."""

    person: list[Row]
    auction: list[Row]
    bid: list[Row]
    side_input: list[Row]

    def winners(self) -> Iterator[tuple[Row, Row]]:
        """Auctions with the highest bid within their time, the earliest of equals."""
        best: dict[int, Row] = {}
        auctions = {one[0]: one for one in self.auction}
        for bid in self.bid:
            auction = auctions.get(bid[0])
            if auction is None or not auction[5] <= bid[5] <= auction[6]:
                continue
            if bid[0] not in best or (-bid[2], bid[5]) < (-best[bid[0]][2], best[bid[0]][5]):
                best[bid[0]] = bid
        return ((auctions[number], bid) for number, bid in best.items())


def windows(time: int, size: int, slide: int) -> Iterator[tuple[int, int]]:
    """The windows, of `size` seconds every `slide` seconds, that an instant lies in."""
    begin = time // (slide * SECOND) * slide * SECOND
    while begin + size * SECOND > time:
        yield begin, begin + size * SECOND
        begin -= slide * SECOND


def moment(time: int, form: str) -> str:
    """An instant as text."""
    return datetime.fromtimestamp(time // SECOND, UTC).strftime(form)


def q0(site: Site) -> Iterable[Row]:
    return ((b[0], b[1], b[2], b[5], b[6]) for b in site.bid)


def q1(site: Site) -> Iterable[Row]:
    return ((b[0], b[1], EUROS * b[2], b[5], b[6]) for b in site.bid)


def q2(site: Site) -> Iterable[Row]:
    return ((b[0], b[2]) for b in site.bid if b[0] % 123 == 0)


def q3(site: Site) -> Iterable[Row]:
    people = {p[0]: p for p in site.person if p[5] in ("OR", "ID", "CA")}
    for a in site.auction:
        if a[8] == 10 and a[7] in people:
            person = people[a[7]]
            yield person[1], person[4], person[5], a[0]


def q4(site: Site) -> Iterable[Row]:
    prices = defaultdict(list)
    for auction, bid in site.winners():
        prices[auction[8]].append(bid[2])
    return ((category, sum(found) / len(found)) for category, found in prices.items())


def q5(site: Site) -> Iterable[Row]:
    counts: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for b in site.bid:
        for window in windows(b[5], 10, 2):
            counts[window][b[0]] += 1
    for window, found in counts.items():
        most = max(found.values())
        yield from ((auction, count, *window) for auction, count in found.items() if count == most)


def q6(site: Site) -> Iterable[Row]:
    sold = defaultdict(list)
    for auction, bid in site.winners():
        sold[auction[7]].append((bid[5], auction[0], bid[2]))
    for seller, found in sold.items():
        found.sort()
        for at, (_, auction, _) in enumerate(found):
            last = [price for _, _, price in found[max(0, at - 10) : at + 1]]
            yield seller, auction, sum(last) / len(last)


def q7(site: Site) -> Iterable[Row]:
    highest: dict[int, int] = {}
    for b in site.bid:
        for _, end in windows(b[5], 10, 10):
            highest[end] = max(b[2], highest.get(end, 0))
    for end, price in highest.items():
        yield from (
            (b[0], b[2], b[1], b[5], b[6]) for b in site.bid if b[2] == price and end - 10 * SECOND <= b[5] <= end
        )


def q8(site: Site) -> Iterable[Row]:
    sellers = {(a[7], window) for a in site.auction for window in windows(a[5], 10, 10)}
    return {(p[0], p[1], w[0]) for p in site.person for w in windows(p[6], 10, 10) if (p[0], w) in sellers}


def q9(site: Site) -> Iterable[Row]:
    return ((*auction, bid[0], bid[1], bid[2], bid[5], bid[6]) for auction, bid in site.winners())


def q11(site: Site) -> Iterable[Row]:
    times = defaultdict(list)
    for b in site.bid:
        times[b[1]].append(b[5])
    for bidder, found in times.items():
        session: list[int] = []
        for time in [*sorted(found), None]:
            if session and (time is None or time >= session[-1] + 10 * SECOND):
                yield bidder, len(session), session[0], session[-1] + 10 * SECOND
                session = []
            if time is not None:
                session.append(time)


def q12(site: Site) -> Iterable[Row]:
    counts: dict[Row, int] = defaultdict(int)
    for b in site.bid:
        for window in windows(b[5], 10, 10):
            counts[b[1], window] += 1
    return ((bidder, count, *window) for (bidder, window), count in counts.items())


def q13(site: Site) -> Iterable[Row]:
    values = dict(site.side_input)
    return ((b[0], b[1], b[2], b[5], values[b[0] % 10_000]) for b in site.bid if b[0] % 10_000 in values)


def q14(site: Site) -> Iterable[Row]:
    for b in site.bid:
        price, hour = EUROS * b[2], b[5] // (3600 * SECOND) % 24
        if 1_000_000 < price < 50_000_000:
            time = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
            yield b[0], b[1], price, time, b[5], b[6], b[6].count("c")


def by_price(bids: list[Row]) -> list[list[Row]]:
    """All bids, and those of three ranks of prices."""
    ranks = [[], [], []]  # type: ignore[var-annotated]
    for b in bids:
        ranks[(b[2] >= 10_000) + (b[2] >= 1_000_000)].append(b)
    return [bids, *ranks]


def grouped(bids: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """The bids by key."""
    found = defaultdict(list)
    for b in bids:
        found[key(b)].append(b)
    return found


def statistics(bids: list[Row]) -> Row:
    """Bids, bidders and auctions by price."""
    ranks = by_price(bids)
    return (
        *map(len, ranks),
        *(len({b[1] for b in one}) for one in ranks),
        *(len({b[0] for b in one}) for one in ranks),
    )


def q15(site: Site) -> Iterable[Row]:
    return ((day, *statistics(found)) for day, found in grouped(site.bid, lambda b: moment(b[5], "%Y-%m-%d")).items())


def q16(site: Site) -> Iterable[Row]:
    for (channel, day), found in grouped(site.bid, lambda b: (b[3], moment(b[5], "%Y-%m-%d"))).items():
        yield channel, day, max(moment(b[5], "%H:%M") for b in found), *statistics(found)


def q17(site: Site) -> Iterable[Row]:
    for (auction, day), found in grouped(site.bid, lambda b: (b[0], moment(b[5], "%Y-%m-%d"))).items():
        prices = [b[2] for b in found]
        counts = map(len, by_price(found))
        yield auction, day, *counts, min(prices), max(prices), sum(prices) / len(prices), sum(prices)


def q18(site: Site) -> Iterable[Row]:
    return (max(found, key=lambda b: b[5]) for found in grouped(site.bid, lambda b: (b[1], b[0])).values())


def q19(site: Site) -> Iterable[Row]:
    for found in grouped(site.bid, lambda b: b[0]).values():
        best = sorted(found, key=lambda b: (-b[2], b[5]))[:10]
        yield from ((*b, place) for place, b in enumerate(best, 1))


def q20(site: Site) -> Iterable[Row]:
    auctions = {a[0]: a for a in site.auction if a[8] == 10}
    return ((*b, *auctions[b[0]][1:]) for b in site.bid if b[0] in auctions)


def q21(site: Site) -> Iterable[Row]:
    for b in site.bid:
        found = re.search("(?:&|^)channel_id=([^&]*)", b[4])
        number = found[1] if found else ""
        if number or b[3].lower() in NUMBERS:
            yield b[0], b[1], b[2], b[3], NUMBERS.get(b[3].lower(), number)


def q22(site: Site) -> Iterable[Row]:
    return ((*b[:4], *[*b[4].split("/"), "", "", ""][3:6]) for b in site.bid)


QUERIES: dict[int, Callable[[Site], Iterable[Row]]] = {
    int(name[1:]): one for name, one in list(globals().items()) if re.fullmatch(r"q\d+", name)
}
