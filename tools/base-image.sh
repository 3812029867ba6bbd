#!/usr/bin/env bash
# Make the image that docker/Dockerfile builds on (debian:bookworm-slim) from Debian's packages, for a machine that reaches
# a Debian mirror but no registry of images, or has no container engine. As root, with buildah and debootstrap.
# The machine's own certificate authorities and apt sources go in, so that a build inside finds what the machine finds.
set -eu
cd "$(dirname "$0")/.."
name=${1:-docker.io/library/debian:bookworm-slim}
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
command -v buildah >/dev/null && command -v debootstrap >/dev/null \
  || { echo "base-image: needs buildah and debootstrap (debian: apt-get install buildah debootstrap)" >&2; exit 1; }
if buildah inspect --type image "$name" >/dev/null 2>&1; then echo "base-image: $name is there"; exit 0; fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >"$root.log" 2>&1 \
  || { echo "base-image: $(tail -1 "$root.log")" >&2; rm -f "$root.log"; exit 1; }
rm -f "$root.log"
# minbase is what debian:bookworm-slim is, but for documentation
printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\n' >"$root/etc/dpkg/dpkg.cfg.d/slim"
rm -rf "$root"/usr/share/{doc,man,locale}/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null; rm -rf "$root"' EXIT
for authority in /usr/local/share/ca-certificates/*.crt; do
  [ -e "$authority" ] && cp "$authority" "$root/usr/local/share/ca-certificates/"
done
chroot "$root" update-ca-certificates >/dev/null 2>&1
if [ -e /etc/apt/sources.list.d/debian.sources ]; then
  cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
  : >"$root/etc/apt/sources.list"
fi
buildah add -q "$container" "$root" / >/dev/null
# makes clients with their own list of authorities use the system's
buildah config --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
  --cmd bash "$container"
buildah commit -q "$container" "$name" >/dev/null
echo "base-image: $name made from Debian's packages"
