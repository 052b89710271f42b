#!/usr/bin/env bash
# usage: try-sdist.sh PYTHON DIST: unpack the sdist of DIST and run some of its tests there, in a fresh environment
set -euo pipefail
dist=$(realpath "$2")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tar --extract --file "$dist"/refsim-*.tar.gz --directory "$scratch"
cd "$scratch"/refsim-*/
make demo PYTHON="$1"
.venv/bin/python -m pytest -q tests/test_package.py tests/test_house.py tests/core tests/formats
