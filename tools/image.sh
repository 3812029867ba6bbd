#!/usr/bin/env bash
# `make image`: build docker/Dockerfile with docker, podman or buildah, whichever is there. IMAGE names the result.
set -u
cd "$(dirname "$0")/.."
image=${IMAGE:-vernier:$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)}
revision=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  build=(docker build)
elif command -v podman >/dev/null; then
  build=(podman build --format docker)
elif command -v buildah >/dev/null; then
  # chroot and vfs work without privileges of the kernel, so also inside a container
  export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
  # in the format of docker images, because that of OCI has no health check
  build=(buildah bud --isolation chroot --layers --format docker)
else
  echo "image: needs docker, podman or buildah (debian: apt-get install buildah)" >&2
  exit 1
fi
"${build[@]}" --label "org.opencontainers.image.revision=$revision" -f docker/Dockerfile -t "$image" "$@" . || { echo "image: the build failed; see above" >&2; exit 1; }
echo "image: $image"
