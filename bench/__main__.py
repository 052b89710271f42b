"""All benchmarks, one after another: python -m bench. One alone: python -m bench.NAME."""

import subprocess
import sys
from pathlib import Path

from refsim.cli._main import NO_DEVICE

HERE = Path(__file__).resolve().parent
SUITES = sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_") and p.stem != "harness")


def main() -> int:
    """Each suite in a process of its own, so that none inherits the memory or the threads of another."""
    commands = {suite: [sys.executable, "-m", f"bench.{suite}", *sys.argv[1:]] for suite in SUITES}
    statuses = {suite: subprocess.run(c, check=False).returncode for suite, c in commands.items()}
    for suite, status in statuses.items():
        if status:
            reason = "no device for it here" if status == NO_DEVICE else f"failed with status {status}"
            print(f"bench: {suite}: {reason}", file=sys.stderr)
    return int(any(status not in (0, NO_DEVICE) for status in statuses.values()))


if __name__ == "__main__":
    sys.exit(main())
