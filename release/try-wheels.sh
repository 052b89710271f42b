#!/usr/bin/env bash
# usage: try-wheels.sh PYTHON DIST: install the wheels of DIST in a fresh environment, away from any checkout, and use them
set -euo pipefail
dist=$(realpath "$2")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1" -m venv "$scratch/env"
cd "$scratch"  # nothing of a checkout can be imported here
export PATH=$scratch/env/bin:$PATH XDG_CACHE_HOME=$scratch/cache PIP_DISABLE_PIP_VERSION_CHECK=1
wheel=$(echo "$dist"/refsim-*.whl)

python -m pip install --quiet "$wheel"
status=0; refsim golden verify q8ta_relu/0003 2>said || status=$?
grep "pip install 'refsim\[golden\]'" said && test "$status" = 3
python -m pip install --quiet --find-links "$dist" "$wheel[golden]"
model=$(python -c 'from importlib.resources import files; print(files("refsim.bundled") / "mixed_ops.pte")')

refsim --version
refsim doctor
refsim demo
refsim inspect "$model"
refsim check "$model"
refsim run "$model" --random 0 -o out.npz
refsim compare "$model" --random 0 -x cpu -x cpu:emulated
refsim golden verify q8ta_add/0003 q8ta_relu q8ta_conv2d_dw/0007 -x cpu,cpu:emulated
refsim replay q8ta_add/0003
refsim golden export --pte programs q8ta_relu --most 100000
echo "try-wheels.sh: $(python --version): the wheels work"
