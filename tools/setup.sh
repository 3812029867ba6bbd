#!/usr/bin/env bash
# `make setup`: .venv from the lock, .jars, compiled kernels. Safe to repeat; a quarter of a second when all is there.
#
#     tools/setup.sh run|dev    what the service needs to run, or with the tools of developers (the default)
#
# This finds a Python and takes the lock; service/toolchain/install.py does the work. Every way in which it can fail says so in one
# line and exits 1.
set -u
cd "$(dirname "$0")/.."
group=${1:-dev}
mkdir -p .make || exit 1
say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Python >= 3.11. A name on PATH may be a pyenv shim that does not run, so each candidate is run.
usable() { "$1" -I -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
if [ -n "${PYTHON:-}" ]; then
  usable "$PYTHON" || die "PYTHON=$PYTHON is not a python 3.11 or newer that runs"
fi

# Two set-ups at a time would interfere with each other; the kernel releases the lock however this process ends.
if command -v flock >/dev/null; then
  exec 9>.make/lock
  flock -n 9 || { say "another make setup is at work here; waiting for it"; flock 9; }
fi

if [ -x .venv/bin/python ] && .venv/bin/python -m vernier.service.toolchain.install check "$group" >.make/check.log 2>&1; then
  exit 0
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
  for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if usable "$name"; then python=$name; break; fi
  done
fi
there=$(python3 --version 2>/dev/null | grep -oE '[0-9][0-9.]+')
[ -n "$python" ] || die "no python 3.11 or newer (python3 is ${there:-missing}): install one (debian: apt-get install python3 python3-venv) or name one with PYTHON="
exec "$python" -m vernier.service.toolchain.install "$group"
