"""All benchmarks that any machine can run, one after another: python -m bench. One alone: python -m bench.NAME."""

import subprocess
import sys

#: Not here: bench.gpu, which would take hours on a driver for the CPU; bench.peers, which needs the engines that it
#: compares with (the `peers` extra); bench.startup and bench.limits, which have no peers.
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
