"""What Kafka's client computes for each batch of records is computed in C."""

from kafka.record import util


def test_the_client_has_the_fast_checksum() -> None:
    """Without the package the client says nothing and takes Python, which is a thousand times slower."""
    assert util.crc32c_c is not None
    assert util.crc32c_c(b"123456789") == util.crc32c_py(b"123456789") == 0xE3069283
