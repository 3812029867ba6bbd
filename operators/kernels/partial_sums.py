"""Partial sums of numbers at places 0, 1, 2 …, none of them negative (a Fenwick tree). Several trees share one array;
the tree of `size` places that begins at `base` takes size + 1 words. O(log size) each.

Source: Fenwick, "A new data structure for cumulative frequency tables" (1994).
"""

from vernier.storage.kernels.cells import put_word, word
from vernier.storage.kernels.inlining import inlined


@inlined
def build_sums(tree, base, size):  # type: ignore[no-untyped-def]
    """Make a tree of numbers that lie at base + 1 + place. O(size)."""
    for i in range(1, size + 1):
        above = i + (i & -i)
        if above <= size:
            put_word(tree, base + above, word(tree, base + above) + word(tree, base + i))


@inlined
def add_at(tree, base, size, place, diff):  # type: ignore[no-untyped-def]
    """Add to the number at a place."""
    i = place + 1
    while i <= size:
        put_word(tree, base + i, word(tree, base + i) + diff)
        i += i & -i


@inlined
def sum_before(tree, base, place):  # type: ignore[no-untyped-def]
    """The sum of the numbers at lower places."""
    total, i = 0, place
    while i > 0:
        total += word(tree, base + i)
        i -= i & -i
    return total


@inlined
def place_of(tree, base, size, wanted):  # type: ignore[no-untyped-def]
    """The first place whose number makes the sum, with those before it, at least `wanted` (above 0); `size` if all
    together are less."""
    step, found = 1, 0
    while 2 * step <= size:
        step *= 2
    while step > 0:
        if found + step <= size and word(tree, base + found + step) < wanted:
            found += step
            wanted -= word(tree, base + found)
        step >>= 1
    return found
