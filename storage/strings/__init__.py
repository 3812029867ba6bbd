"""Long strings, bytes and lists ("texts"): rows contain four words per text, and this package keeps the contents behind
them.

In: byte strings as Contents. Out: words that compare and hash like the texts, dictionaries to store with batches, and
the contents again. Read first: string_heap.py.
"""
