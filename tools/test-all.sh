#!/usr/bin/env bash
# `make test-all`: pytest with the arguments given. Tests of live services wait for processes, which come late when three
# files run at a time on two cores. So a few tests that failed run once more, alone. If they pass, the run passes and its
# last lines name them: whoever reads them decides whether the test or the product was too impatient.
set -u
cd "$(dirname "$0")/.."
most=3
kept=.pytest_cache/v/cache/lastfailed
rm -f "$kept"
.venv/bin/python -m pytest "$@"
status=$?
# 1: tests failed; anything else is an error of the run itself
[ $status -eq 1 ] && [ -s "$kept" ] || exit $status
mapfile -t failed < <(.venv/bin/python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$kept")
if [ ${#failed[@]} -gt $most ]; then
  echo "test-all: ${#failed[@]} tests failed; at most $most would run once more, alone" >&2
  exit 1
fi
printf 'test-all: failed beside others, runs once more, alone: %s\n' "${failed[@]}" >&2
.venv/bin/python -m pytest --last-failed || exit
printf 'test-all: FAILED beside others, passed alone: %s\n' "${failed[@]}" >&2
