#!/bin/sh
# Installs Debian packages as root, or through sudo where that asks for no password: those that are named, else those that
# apt.txt calls required or wanted.
set -eu
test $# -gt 0 || set -- $(awk '$1 == "required" || $1 == "wanted" { print $2 }' "$(dirname "$0")/apt.txt")
install="apt-get install --yes --no-install-recommends $*"

command -v apt-get >/dev/null || { echo "install-packages.sh: no apt-get here; install what it calls $*" >&2; exit 2; }
as_root=
if test "$(id -u)" != 0; then
  as_root="sudo -n"
  $as_root true 2>/dev/null || { echo "install-packages.sh: needs root; fix: sudo $install" >&2; exit 2; }
fi
$as_root apt-get update  # a machine that never fetched its package lists finds nothing
$as_root $install
