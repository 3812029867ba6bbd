#!/usr/bin/env bash
# `make check`: every check runs, also after one has failed; exits 1 when any has.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
code=(storage operators service vernier.py)
failed=()
try() {
  local name=$1; shift
  local started=$SECONDS output
  if output=$("$@" 2>&1); then
    printf 'check: %-12s ok (%d s)\n' "$name" $((SECONDS - started))
  else
    printf '%s\n' "$output"
    printf 'check: %-12s FAILED\n' "$name"
    failed+=("$name")
  fi
}
# The tools below find packages by folders: this one has links, so that they find `vernier.storage`.
typed=.make/typed
mkdir -p $typed/vernier
for top in storage operators service; do ln -sfn "../../../$top" $typed/vernier/$top; done
ln -sfn ../../../vernier.py $typed/vernier/__init__.py
root=$PWD
types() { (cd $typed && "$root/$bin/mypy" --config-file "$root/pyproject.toml" --cache-dir "$root/.mypy_cache" -p vernier); }
layers() { (cd $typed && "$root/$bin/lint-imports" --no-cache --config "$root/pyproject.toml"); }
no_addresses() { # what is fetched comes from where the user's tools look, never from an address of ours
  ! grep -nE '[a-z]+://|^ *(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)\b' requirements.lock service/toolchain/jars.lock
}
lock_is_of_pyproject() { # each direct dependency is in the lock
  $bin/python - <<'PY'
import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
wanted = project["dependencies"] + sum(project["optional-dependencies"].values(), [])
name = lambda text: re.match(r"[A-Za-z0-9._-]+", text)[0].lower().replace("_", "-")
locked = {name(line) for line in open("requirements.lock") if re.match(r"[A-Za-z0-9]", line)}
absent = sorted({name(text) for text in wanted} - locked)
if absent:
    sys.exit(f"not in requirements.lock: {', '.join(absent)}; run `make lock`")
PY
}
try format $bin/ruff format --check --quiet .
try lint $bin/ruff check --quiet .
try types types
try layers layers
try prose $bin/python tools/prose.py
try results $bin/python tools/results.py
# without --quiet, which would hide the warnings from --strict
try docs $bin/mkdocs build --strict --site-dir build/docs
try duplicates $bin/pylint --disable=all --enable=duplicate-code "${code[@]}"
try addresses no_addresses
try lock lock_is_of_pyproject
if [ ${#failed[@]} -gt 0 ]; then
  printf 'check: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
