"""A user's own shader modules: which of them refsim can run, and what is wrong with their kernels, case by case."""

#: Cases of the corpus that are run of each operator, beside the recordings.
CASES = 48
#: Cases of each operator that sanitizers look at: each costs some ten runs, and a pipeline or two.
SANITIZED = 6
#: The same where a pattern chooses them: all.
MOST_SANITIZED = 1 << 20
#: How long a search for a repair may take.
SECONDS = 60.0
#: Edits that one tries within a second on a usual machine, where nobody says how long; a slower one is waited for.
EDITS_PER_SECOND, SLOWER = 800, 6.0
