"""Default limits for what the service reads. They are in a module of their own so that the settings need not import the
formats."""

MOST_BYTES = 64 << 20
"""The maximum size of a message once it is decompressed and expanded, in bytes."""

DIFF_RANGE = 1 << 31
"""Diffs of messages are between this and its negative, so that sums of them stay far from overflow."""
