"""Logics: what reductions make of whole groups, a family a file."""
