#!/usr/bin/env bash
# The kernels' own tests twice more: with every index checked, for which kernels are compiled into files of their own,
# and interpreted, where Python checks types and indexes and a debugger can step. The interpreted tests are those whose
# cases are small enough: an interpreted kernel takes a hundred times as long.
set -u
cd "$(dirname "$0")/.."
interpreted="tests/storage/test_rowcounts.py tests/storage/test_sorting.py tests/storage/test_narrow.py tests/operators/test_rounds.py tests/operators/test_pairs.py"
checked="$interpreted tests/storage/test_keying.py tests/storage/test_folding.py tests/storage/test_histories.py tests/storage/test_wide.py
  tests/operators/test_interpreter.py tests/operators/test_combining.py tests/operators/test_covers.py tests/operators/test_ends.py tests/operators/test_surroundings.py tests/operators/test_chosen.py
  tests/operators/test_advancing.py tests/operators/test_leading.py tests/operators/test_exact.py tests/operators/test_stretches.py tests/storage/test_prefix_index.py tests/ingest/test_scanner.py tests/ingest/test_avro_records.py tests/ingest/test_envelopes.py"
two="-n 2 --dist loadfile --max-worker-restart 0"
failed=0
echo "kernels with every index checked"
# shellcheck disable=SC2086
NUMBA_BOUNDSCHECK=1 .venv/bin/python -m pytest -q $two $checked "$@" || failed=$?
echo "kernels interpreted"
# numpy warns of integers that wrap around, which hashes are meant to do
# shellcheck disable=SC2086
NUMBA_DISABLE_JIT=1 .venv/bin/python -m pytest -q $two -W "ignore:overflow encountered in scalar:RuntimeWarning" \
  $interpreted "$@" || failed=$?
exit "$failed"
