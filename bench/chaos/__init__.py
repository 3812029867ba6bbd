"""Chaos: a service under load while its processes are killed and stopped; `python -m bench.chaos --help`."""
