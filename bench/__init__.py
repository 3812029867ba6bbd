"""Benchmarks: ratios against a floor or a peer, side by side in one run. `make bench`, `make bench-full`."""
