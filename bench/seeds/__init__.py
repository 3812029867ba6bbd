"""The experiments of the five articles, each with what the article reports: `python -m bench.seeds` (read experiment.py
first)."""
