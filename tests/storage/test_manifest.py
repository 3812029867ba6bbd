"""Manifests: everything comes back, and any damage is found and named."""

import pytest

from vernier.storage.blob.segment import checksum
from vernier.storage.errors import Damaged, UnknownFormat, VernierError
from vernier.storage.state.manifest import (
    BatchRef,
    Manifest,
    PartitionEntry,
    SourceEntry,
    TraceEntry,
    ViewEntry,
    decode_manifest,
    encode_manifest,
    manifest_epoch,
    manifest_file,
)
from vernier.storage.state.rollup import plain, written

REF = BatchRef("000000000007-a-0", "edges/0", 12, 960, -(2**63) + 2, 2**63 - 1, 17)
WHOLE = Manifest(
    epoch=7,
    attempt="7-a1b2",
    lower=1_700_000_000_000_000_001,
    upper=1_700_000_000_000_000_999,
    committed_ns=1_700_000_000_123_456_789,
    workers=2,
    app="reach",
    program="f00d",
    traces={"edges": TraceEntry(1, 1, 0, [[REF], []], since=17), "reach": TraceEntry(1, 0, 1, [[], []])},
    held={"edges": [[BatchRef("s2", "held", 1, 8, 0, 1, 0)], []]},
    ingestion={"edges": {"progress": {"0": "17"}}},
    offsets={"edges": {0: 17, 1: 2**62}},
    views={"reach": ViewEntry([["node", "Int64"]], ["node"], "reach", -5)},
    changes={"reach": [BatchRef("s3", "changes/reach", 1, 8, 0, 1, 0)]},
    dead=[BatchRef("s4", "dead", 1, 8, 0, 1, 0)],
    sources={
        "edges": SourceEntry(
            topic="t", clock="arrival", frontier=2**62, held=3, partitions={0: PartitionEntry(2**62, lag=1)}
        )
    },
    stats={"updates": 2**63 - 1, "latency": [1, 2, 3]},
)


def test_a_manifest_comes_back() -> None:
    data = encode_manifest(written(WHOLE, None))
    assert plain(decode_manifest("m", data)) == WHOLE
    assert data.count(b"\n") == 2
    assert len(list(WHOLE.refs())) == 4
    assert WHOLE.segments() == {"000000000007-a-0", "s2", "s3", "s4"}
    assert WHOLE.sinces() == {"edges": 17, "reach": -5}
    assert len({REF, BatchRef(*(getattr(REF, name) for name in REF.__struct_fields__))}) == 1


def test_every_flipped_bit_is_found_and_every_cut() -> None:
    data = encode_manifest(written(WHOLE, None))
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises((Damaged, UnknownFormat), match="manifest m: "):
                decode_manifest("m", bytes(flipped))
        with pytest.raises(Damaged, match="manifest m: "):
            decode_manifest("m", data[:at])
    with pytest.raises(Damaged, match=f"is {len(data) + 3} bytes long, expected {len(data)}"):
        decode_manifest("m", data + b"...")


def test_damage_says_what_was_expected() -> None:
    data = encode_manifest(written(WHOLE, None))
    with pytest.raises(Damaged, match=r"manifest m: checksum \w{16}, expected \w{16}"):
        decode_manifest("m", data.replace(b"reach", b"reech"))
    with pytest.raises(UnknownFormat, match="manifest m: format 4, this release reads 3"):
        decode_manifest("m", data.replace(b'"format":3', b'"format":4', 1))


def test_a_sound_file_of_another_shape_is_damage_too() -> None:
    other = encode_manifest(written(WHOLE, None)).replace(b'"epoch":7', b'"epoch":"x"')
    head, body, _ = other.split(b"\n")
    head = b'{"format":1,"bytes":%d,"xxh3_64":"%016x"}' % (len(body), checksum(body))
    with pytest.raises(VernierError, match=r"manifest m: Expected `int`, got `str` - at `\$\.epoch`"):
        decode_manifest("m", head + b"\n" + body + b"\n")


def test_names_of_manifests_sort_as_epochs() -> None:
    names = [manifest_file(epoch) for epoch in (1, 9, 10, 10**11)]
    assert names == sorted(names)
    assert [manifest_epoch(name) for name in names] == [1, 9, 10, 10**11]
    for other in ("epochs/1.json", f"{names[0]}.damaged", f"{names[0]}.7.0.tmp", "epochs/x.json", names[0][7:]):
        assert manifest_epoch(other) is None


def test_the_facts_about_sources_of_older_releases_become_entries() -> None:
    body = (
        b'{"epoch":7,"attempt":"a","lower":1,"upper":2,"committed_ns":3,"workers":1,"app":"reach","program":"f00d",'
        b'"stats":{"metrics":{"epochs_total":[[["committed"],7]]},"facts":{"sources":{'
        b'"edges":{"topic":"t","format":"json","clock":"event","on_late":"advance","resolution":"millisecond",'
        b'"frontier":"1700000000000000001","state":"active","held":4,"partitions":{'
        b'"0":{"frontier":"1700000000000000001","state":"active","lag":5},'
        b'"1":{"frontier":null,"state":"idle","lag":null}}},'
        b'"roots":{"topic":"r","format":"vernier","clock":"arrival","on_late":"reject","resolution":"exact",'
        b'"frontier":null,"state":"idle","held":0,"partitions":{}}}}},"format":2}'
    )
    head = b'{"format":2,"bytes":%d,"xxh3_64":"%016x"}' % (len(body), checksum(body))
    found = decode_manifest("m", head + b"\n" + body + b"\n")
    assert found.sources == {
        "edges": SourceEntry(
            topic="t",
            format="json",
            clock="event",
            on_late="advance",
            rounding="millisecond",
            frontier=1_700_000_000_000_000_001,
            partitions={0: PartitionEntry(1_700_000_000_000_000_001, lag=5), 1: PartitionEntry(idle=True)},
            held=4,
        ),
        "roots": SourceEntry(topic="r", clock="arrival", idle=True),
    }
    assert found.stats == {"metrics": {"epochs_total": [[["committed"], 7]]}}
    assert decode_manifest("m", encode_manifest(found)) == found
