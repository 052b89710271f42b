"""Many runs of one program on a device: the script that makes them and keeps what differs, and its folder.

The folder has the outputs of each distinct result, under the name of the run that gave it first, and `LIST`: a line for
each run, with its number and that name.
"""

from __future__ import annotations

import os
from pathlib import Path

from refsim.core.errors import FormatError
from refsim.formats.file import read_file

LIST = "runs.txt"
SUFFIX = ".runs.sh"
#: Runs that a folder may list.
MOST = 100_000
_SCRIPT = """\
#!/bin/sh
# Run {program} {runs} times with the same inputs, and keep the outputs of each result that no run gave before.
#
#     sh {script} COMMAND ...
#
# COMMAND runs the program once. It gets one word more: what the names of its output files begin with, as
# executor_runner wants it behind --output_file:
#
#     sh {script} ./executor_runner --model_path {program} --inputs in.bin --output_file
#
# A program that saves an .npz adds .npz to that word. Then: refsim triage {program} -i IN.npz --outputs {folder}
folder={folder}
[ $# -gt 0 ] || {{ echo "sh $0 COMMAND ..." >&2; exit 2; }}
mkdir "$folder" || exit 2
n=0 kept=
while [ $n -lt {runs} ]; do
    run=$folder/run$n
    "$@" "$run" > "$folder/last.log" 2>&1 || {{ echo "run $n failed, see $folder/last.log" >&2; exit 2; }}
    result=
    for k in $kept; do
        same=1
        for file in "$run"[-.]*; do
            cmp -s "$file" "$folder/run$k${{file#"$run"}}" || {{ same=0; break; }}
        done
        [ $same = 1 ] && {{ result=$k; break; }}
    done
    if [ -n "$result" ]; then
        rm -f "$run"[-.]*
    else
        ls "$run"[-.]* > /dev/null 2>&1 || {{ echo "run $n wrote no file $run-0.bin or $run.npz" >&2; exit 2; }}
        kept="$kept $n" result=$n
    fi
    echo "$n run$result" >> "$folder/{list}"
    n=$((n + 1))
done
echo "$n runs, distinct results:$(echo " $kept" | wc -w)"
"""


def script(program: str, runs: int) -> str:
    """The shell script that lies beside a program, by the program's name alone. It needs no more than a POSIX shell."""
    name = os.path.basename(program)
    folder = f"{Path(name).stem}.runs"
    return _SCRIPT.format(program=name, runs=runs, script=name + SUFFIX, folder=folder, list=LIST)


def results(path: str) -> list[str]:
    """The outputs of each run, in order, where a path is a folder that the script left; else the path alone.

    FormatError for a list that is damaged, or names outputs that are not there.
    """
    where = os.path.join(path, LIST)
    if not os.path.isfile(where):
        return [path]
    found: list[str] = []
    for line, text in enumerate(bytes(read_file(where)).decode("ascii", "replace").splitlines()):
        number, _, name = text.partition(" ")
        if number != str(line) or not name.removeprefix("run").isdigit() or line >= MOST:
            need = f"{line} runN, at most {MOST} lines"
            raise FormatError(f"{where}: line {line + 1}", "not a run", got=repr(text[:40]), need=need)
        npz = os.path.join(path, f"{name}.npz")
        found.append(npz if os.path.isfile(npz) else os.path.join(path, name))
    if not found:
        raise FormatError(where, "lists no run", need="a line for each run")
    return found
