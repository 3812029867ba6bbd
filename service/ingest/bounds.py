"""Bounds of what the service reads, where the settings say nothing else. Settings have them without the formats."""

MOST_BYTES = 64 << 20
"""What a message may hold when it is spelled out."""

DIFF_RANGE = 1 << 31
"""How far diffs of messages are from 0: far from where sums of them overflow."""
