"""All benchmarks that any machine can run, one after another: python -m bench. One alone: python -m bench.NAME."""

import subprocess
import sys

#: bench.gpu is not here: what it measures is meant for a GPU, and would take hours on a driver for the CPU.
SUITES = ("layouts", "operators")


def main() -> int:
    """Each suite in a process of its own, so that none inherits the memory or the threads of another."""
    commands = {suite: [sys.executable, "-m", f"bench.{suite}", *sys.argv[1:]] for suite in SUITES}
    failed = [suite for suite, command in commands.items() if subprocess.run(command, check=False).returncode]
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
