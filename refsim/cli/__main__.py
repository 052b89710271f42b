"""``python -m refsim.cli`` is the command `refsim`."""

import sys

from refsim.cli import main

sys.exit(main())
