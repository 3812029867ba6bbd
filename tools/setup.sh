#!/usr/bin/env bash
# `make setup`: .venv from the lock, .jars, compiled kernels. Safe to repeat; about half a second when all is there.
# Every way in which it can fail says so in one line and exits 1.
set -u
cd "$(dirname "$0")/.."
mkdir -p .make || exit 1
say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Two at a time would tread on each other's feet; the kernel lets go of the lock however we end.
if command -v flock >/dev/null; then
  exec 9>.make/lock
  flock -n 9 || { say "another make setup is at work here; waiting for it"; flock 9; }
fi

# Python >= 3.11. A name on PATH may be a pyenv shim that does not run, so each candidate is asked.
usable() { "$1" -I -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
python=''
if [ -n "${PYTHON:-}" ]; then
  usable "$PYTHON" || die "PYTHON=$PYTHON is not a python 3.11 or newer that runs"
  python=$PYTHON
else
  for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
    if usable "$name"; then python=$name; break; fi
  done
fi
there=$(python3 --version 2>/dev/null | grep -oE '[0-9][0-9.]+')
[ -n "$python" ] || die "no python 3.11 or newer (python3 is ${there:-missing}): install one (debian: apt-get install python3 python3-venv) or name one with PYTHON="

# Java >= 17, before anything is downloaded.
home=$("$python" -I -c 'import sys; sys.path.insert(0, "."); from service.java import main; sys.exit(main())' 2>.make/java.err) \
  || die "$(tail -1 .make/java.err)"

# The environment: whole and of this lock, or made anew.
py=.venv/bin/python
# the settings of linters and tests, from [tool.ruff] on, ask for no new install
want=$({ cat requirements.lock; sed "/^\[tool\.ruff\]/,\$d" pyproject.toml; } | cksum | tr ' ' '-')
# a checkout that was copied or moved has an environment that imports the other one
project() { $py -I -c 'import os, sys, storage; sys.exit(not os.path.samefile(os.path.dirname(storage.__file__), "storage"))' >/dev/null 2>&1; }
whole() {
  [ "$(cat .venv/.made-from 2>/dev/null)" = "$want" ] && usable $py && why=$($py -m service.setup check 2>/dev/null) && project
}
room() { # free MB here
  df -Pm . | awk 'NR == 2 {print $4}'
}
pip() { # $1 what, then pip's words; progress by line, the last error as one line
  local what=$1; shift
  $py -m pip --disable-pip-version-check --no-input "$@" --progress-bar off >.make/pip.log 2>&1 &
  local child=$! seen=0 shown=0 all
  all=$(grep -cE '^[A-Za-z0-9]' requirements.lock)
  trap 'kill $child 2>/dev/null; exit 130' INT TERM
  while kill -0 $child 2>/dev/null; do
    sleep 0.5
    seen=$(grep -c '^Collecting ' .make/pip.log)
    if [ "$seen" -ge $((shown + 15)) ]; then say "$what: $seen of at most $all packages fetched"; shown=$seen; fi
    if [ $shown -gt 0 ] && [ $shown -lt 100000 ] && grep -q '^Installing collected' .make/pip.log; then
      say "$what: unpacking all of them (half a minute)"; shown=100000
    fi
  done
  wait $child; local status=$?
  trap - INT TERM
  [ $status -eq 0 ] && return 0
  if grep -qE 'No space left|Disk quota' .make/pip.log; then die "disk full while installing: $(room) MB are free here; make room and run make setup again"; fi
  if grep -qiE 'hashes|hash mismatch' .make/pip.log && grep -qE 'DO NOT MATCH|do not match' .make/pip.log; then
    die "a package is not the one in requirements.lock: $(grep -m1 -iE 'from http|file' .make/pip.log | cut -c1-120) (all in .make/pip.log)"
  fi
  if grep -qiE 'name resolution|NewConnectionError|ConnectTimeout|Max retries|ProxyError|Network is unreachable|connection (refused|reset|broken)' .make/pip.log; then
    die "no network for pip: check the connection, HTTPS_PROXY or pip's configuration (all in .make/pip.log)"
  fi
  die "pip failed: $(grep -E '^ *(ERROR|error):' .make/pip.log | head -1 | cut -c1-200) (all in .make/pip.log)"
}
install() {
  pip setuptools install --require-hashes --no-deps --only-binary :all: -r .make/setuptools.lock
  # pyspark comes as source only: built here with the setuptools of the lock, never with one fetched without a hash
  pip packages install --require-hashes --no-deps --no-build-isolation -r requirements.lock
  pip vernier install --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
}
make_venv() {
  rm -rf .venv
  "$python" -m venv .venv >.make/venv.log 2>&1 \
    || { rm -rf .venv; die "$python cannot make a virtual environment (debian: apt-get install python3-venv): $(grep -v '^$' .make/venv.log | tail -1 | cut -c1-160)"; }
}
why=''
if ! whole; then
  free=$(room)
  [ "$free" -ge 1000 ] || die "disk full: $free MB are free here, set-up needs some 4000; make room and run make setup again"
  awk '/^[a-z]/ {on = /^setuptools==/} on' requirements.lock >.make/setuptools.lock
  if [ ! -e .venv ]; then
    [ "$free" -ge 4000 ] || die "disk full: $free MB are free here, a fresh set-up needs 4000; make room and run make setup again"
    say "making .venv with $("$python" --version) from requirements.lock (a minute or two)"
    make_venv
  elif ! usable $py || ! $py -I -m pip --version >/dev/null 2>&1; then
    say ".venv is broken (its python or pip does not run); making it anew"
    make_venv
  elif [ -n "$why" ]; then
    say ".venv is not whole ($why); making it anew"
    make_venv
  else
    say "bringing .venv up to requirements.lock"
  fi
  rm -f .venv/.made-from
  install
  printf '%s\n' "$want" >.venv/.made-from
  if ! whole; then # a leftover that pip took for whole
    say ".venv is still not whole (${why:-the project does not import}); making it anew"
    make_venv; install; printf '%s\n' "$want" >.venv/.made-from
    whole || die ".venv stays broken: ${why:-the project does not import}; see .make/pip.log"
  fi
fi

printf 'export JAVA_HOME=%q\nexport PYSPARK_PYTHON=%q\nexport PYSPARK_DRIVER_PYTHON=%q\n' \
  "${home}" "$PWD/$py" "$PWD/$py" >.make/env.$$ && mv .make/env.$$ .make/env || die "cannot write .make/env"
JAVA_HOME=$home $py -m service.jars || exit 1
$py -m service.setup kernels || die "the kernels do not compile; see above"
