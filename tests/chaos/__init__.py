"""The chaos test, and tests of what it is made of."""
