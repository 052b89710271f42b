#!/usr/bin/env bash
# usage: check-tag.sh TAG DIST: DIST holds the release that the tag names, whole and undamaged
set -euo pipefail
version=${1#v}
cd "$2"
for file in "refsim-$version.tar.gz" "refsim-$version-py3-none-any.whl" "refsim_golden-$version-py3-none-any.whl"; do
  test -f "$file" || { echo "check-tag.sh: $1 is not the version that was built: no $file in $2" >&2; exit 2; }
done
sha256sum --check --quiet SHA256SUMS
