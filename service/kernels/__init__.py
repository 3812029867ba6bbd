"""Compiled loops over bytes; pure functions of arrays, whose callers check and allocate."""
