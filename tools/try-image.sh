#!/usr/bin/env bash
# `make try-image`: build the image, start the service inside it as it will run (its user, entry point, health check), send
# it records and query it over HTTP. With docker or podman; without an engine as root with buildah, in a chroot, on a base
# made by debootstrap if there is none. If none of these is available it says so, checks what can be checked without them,
# and does not fail: CI calls this. IMAGE_SECONDS bounds the build, RUN_SECONDS the rest.
set -u
cd "$(dirname "$0")/.."
image=${IMAGE:-vernier:$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)}
build_seconds=${IMAGE_SECONDS:-420} run_seconds=${RUN_SECONDS:-180}
largest=1200000000
say() { echo "try-image: $*"; }
die() { say "FAILED: $*" >&2; exit 1; }

# --- what there is --------------------------------------------------------------------------------------------------
engine=''
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then engine=docker
elif command -v podman >/dev/null && podman info >/dev/null 2>&1; then engine=podman
elif command -v buildah >/dev/null; then
  export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
  if [ "$(id -u)" -ne 0 ]; then why='not root, and buildah in a chroot needs it'
  elif buildah inspect --type image docker.io/library/debian:bookworm-slim >/dev/null 2>&1; then engine=buildah
  elif command -v debootstrap >/dev/null; then engine=buildah
  else why='no debootstrap to make the base image with (debian: apt-get install debootstrap)'; fi
else why='neither docker, podman nor buildah is here (debian: apt-get install buildah debootstrap)'; fi

without() { # what can be said of a Dockerfile without building it
  say "NOT BUILT: $1"
  local missing=0 file
  while read -r file; do
    [ -e "$file" ] || { say "docker/Dockerfile copies $file, which is not here"; missing=1; }
  done < <(awk '/^COPY --from/ {next} /^COPY/ {for (i = 2; i < NF; i++) print $i}' docker/Dockerfile)
  .venv/bin/python - <<'PY' || missing=1
import re, sys, tomllib
wanted = {re.match(r"[A-Za-z0-9._-]+", one)[0].lower() for one in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]}
locked = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in open("docker/requirements.lock") if re.match(r"[A-Za-z0-9]", line)}
if absent := sorted(wanted - locked):
    sys.exit(f"try-image: docker/requirements.lock lacks {', '.join(absent)}; run make lock")
PY
  [ $missing -eq 0 ] || die "the Dockerfile and the tree do not fit"
  say "checked instead: every file that the Dockerfile copies is here, and its lock has every dependency"
  exit 0
}
[ -n "$engine" ] || without "$why"

# --- build ----------------------------------------------------------------------------------------------------------
began=$SECONDS
if [ "$engine" = buildah ]; then
  timeout "$build_seconds" tools/base-image.sh || without "the base image cannot be made here"
fi
IMAGE=$image timeout "$build_seconds" tools/image.sh >.make/try-image.log 2>&1
status=$?
[ $status -eq 124 ] && without "the build took more than $build_seconds s (IMAGE_SECONDS)"
[ $status -eq 0 ] || { tail -5 .make/try-image.log >&2; die "the build failed; see .make/try-image.log"; }
say "built $image with $engine in $((SECONDS - began)) s"

# --- start ----------------------------------------------------------------------------------------------------------
began=$SECONDS
port() { .venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
http=$(port) kafka=$(port)
settings=(VERNIER_KAFKA__EMBEDDED=true "VERNIER_KAFKA__BOOTSTRAP=127.0.0.1:$kafka" VERNIER_HTTP__PORT=8642 VERNIER_WORKERS=1)
work=$(mktemp -d)
container='' service=''
clean() {
  # A process in the background of a script does not hear SIGINT, and what runs in a chroot may not hear its parent.
  if [ -n "$service" ]; then
    pkill -TERM -P "$service" 2>/dev/null; kill -TERM "$service" 2>/dev/null
    for _ in $(seq 30); do kill -0 "$service" 2>/dev/null || break; sleep 1; done
    kill -KILL "$service" 2>/dev/null
  fi
  case $engine in
    buildah) [ -n "$container" ] && buildah rm "$container" >/dev/null ;;
    *) [ -n "$container" ] && "$engine" rm -f "$container" >/dev/null ;;
  esac
  rm -rf "$work"
}
trap clean EXIT
python=.venv/bin/python
if [ "$engine" = buildah ]; then
  # A chroot shares this machine's network, so the port must be a free one of it, and the health check is told of it.
  settings=("${settings[@]/VERNIER_HTTP__PORT=8642/VERNIER_HTTP__PORT=$http}")
  container=$(buildah from "$image") || die "buildah from $image"
  tree=$(buildah mount "$container") || die "buildah mount"
  size=$(du -sb --one-file-system "$tree" | cut -f1)
  about() { buildah inspect --type image "$image" | $python -c "import json, sys; found = json.load(sys.stdin)['Docker']['config']; print($1)"; }
  user=$(about "found['User']")
  mapfile -t start < <(about "'\n'.join(found['Entrypoint'] + found['Cmd'])")
  check=$(about "' '.join(__import__('shlex').quote(word) for word in found['Healthcheck']['Test'][1:])")
  inside() { buildah run --isolation chroot --user "$user" "$container" -- "$@"; }
  who=$(inside id -u)
  inside env "${settings[@]}" "${start[@]}" >"$work/service.log" 2>&1 &
  service=$!
  healthy() { inside env "${settings[@]}" sh -c "$check" >/dev/null 2>&1; }
else
  size=$("$engine" image inspect -f '{{.Size}}' "$image")
  user=$("$engine" image inspect -f '{{.Config.User}}' "$image")
  given=(); for one in "${settings[@]}" VERNIER_HTTP__HOST=0.0.0.0 VERNIER_HTTP__ANONYMOUS=read; do given+=(-e "$one"); done
  container=$("$engine" run -d -p "127.0.0.1:$http:8642" "${given[@]}" "$image") || die "$engine run"
  inside() { "$engine" exec "$container" "$@"; }
  who=$(inside id -u)
  healthy() { [ "$("$engine" inspect -f '{{.State.Health.Status}}' "$container")" = healthy ]; }
fi
say "size: $((size / 1000000)) MB"
[ "$size" -lt "$largest" ] || die "the image has $size bytes, more than $largest"
[ -n "$user" ] && [ "$user" != root ] && [ "$user" != 0 ] || die "the image runs as '${user:-root}'"
[ "${who:-0}" -ne 0 ] || die "processes inside are uid ${who:-unknown}"
say "runs as $user, uid $who"

ask() { # a path, and what of the answer is printed
  $python - "$http" "$@" <<'PY'
import json, sys, urllib.request
port, path, shown = sys.argv[1:]
with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
    body = json.load(answer)
print(eval(shown))
PY
}
until ask /readyz "body['epoch']" >"$work/ready" 2>/dev/null; do
  [ -z "$service" ] || kill -0 "$service" 2>/dev/null || { tail -5 "$work/service.log" >&2; die "the service has ended"; }
  [ $((SECONDS - began)) -lt "$run_seconds" ] || { tail -5 "$work/service.log" 2>/dev/null >&2; die "not ready within $run_seconds s"; }
  sleep 1
done
say "ready after $((SECONDS - began)) s: epoch $(cat "$work/ready")"
healthy || { sleep 15; healthy; } || die "the health check does not pass"
say "the image's health check passes"

# --- records in, rows out: a chain of three edges from root 1 -----------------------------------------------------------
now=$(date +%s%N)
{
  echo "{\"input\":\"roots\",\"data\":[1],\"time\":$now}"
  for edge in 1,2 2,3 3,4 8,9; do echo "{\"input\":\"edges\",\"data\":[$edge],\"time\":$now}"; done
} >"$work/updates.jsonl"
inside env "${settings[@]}" vernier send - --topic graph --format vernier --promise --config configs/demo.yaml <"$work/updates.jsonl" \
  >"$work/send.log" 2>&1 || { cat "$work/send.log" >&2; die "vernier send inside"; }
wanted='[(1, 0), (2, 1), (3, 2), (4, 3)]'
until [ "$(ask /v1/views/distances "sorted((row['node'], row['distance']) for row in body['rows'])" 2>/dev/null)" = "$wanted" ]; do
  [ $((SECONDS - began)) -lt "$run_seconds" ] || die "the rows are not $wanted: $(ask /v1/views/distances "body['rows']" 2>&1 | tail -1)"
  sleep 1
done
say "rows over HTTP are $wanted, as they should be ($((SECONDS - began)) s since the start)"
