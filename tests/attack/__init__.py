"""Attacks on a running service, and what it must do about each."""
