#!/usr/bin/env bash
# The kernels' own tests twice more: with every index checked, for which kernels are compiled into files of their own,
# and interpreted, where what Python checks is checked, too.
set -u
cd "$(dirname "$0")/.."
# With few rows each: checked or interpreted kernels are slow.
own="tests/storage/test_folding.py tests/storage/test_histories.py tests/storage/test_rowcounts.py tests/storage/test_sorting.py
  tests/storage/test_wide.py tests/operators/test_rounds.py tests/operators/test_exact.py tests/ingest/test_scanner.py"
failed=0
echo "kernels with every index checked"
# shellcheck disable=SC2086
NUMBA_BOUNDSCHECK=1 .venv/bin/python -m pytest -q $own "$@" || failed=$?
echo "kernels interpreted"
# shellcheck disable=SC2086
NUMBA_DISABLE_JIT=1 .venv/bin/python -m pytest -q $own "$@" || failed=$?
exit "$failed"
