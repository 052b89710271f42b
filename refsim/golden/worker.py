"""What the processes of `refsim.golden.verify` hold: the corpus and the executors that it is checked on."""

from __future__ import annotations

from collections.abc import Sequence

from refsim.core.qmath import Profile
from refsim.exec.factory import executor_named
from refsim.golden.chain import CHAINS, ChainEntry
from refsim.golden.chain_check import check_chain
from refsim.golden.check import Checked, check_entries, check_entry, check_stored
from refsim.golden.store import Corpus, DigestEntry


class Checker:
    """Checks one case after another. Raises what opening an executor raises."""

    def __init__(
        self, root: str, executors: list[str], profile: Profile | None = None, threads: int = 1
    ) -> None:
        self.corpus = Corpus(root)
        self.profile = profile
        self.executors = {name: executor_named(name, threads) for name in executors}
        self._op = ""
        self._entries: dict[int, DigestEntry] = {}
        self._chains: dict[int, ChainEntry] = {}

    def batch(self) -> int:
        """How many cases to check at once: as many as an executor likes that needs no second look at its kernels."""
        executors = self.executors.values()
        return (
            1
            if any(executor.foreign for executor in executors)
            else max((e.batch for e in executors), default=1)
        )

    def check_many(self, cases: Sequence[str], explained: int | None = None) -> list[list[Checked]]:
        """The results of each of several cases of the digests of one operator; ``explained`` failures with causes."""
        self._load(cases[0].partition("/")[0])
        entries = [self._entries[int(case.partition("/")[2])] for case in cases]
        return list(check_entries(entries, self.executors, self.profile, explained))

    def _load(self, op: str) -> None:
        if op != self._op:
            self._entries = {entry.number: entry for entry in self.corpus.entries(op)}
            self._op = op

    def check(self, kind: str, case: str, explain: bool = True) -> list[Checked]:
        """The results of a case: of its stored ``bytes``, or of its line of ``digests``; or those of a chain."""
        op, _, number = case.partition("/")
        if kind == CHAINS:
            self._chains = self._chains or {entry.number: entry for entry in self.corpus.chains()}
            return list(check_chain(self._chains[int(number)], self.executors, self.profile))
        self._load(op)
        if kind == "bytes":
            stored, entry = self.corpus.stored_case(case), self._entries.get(int(number))
            return list(check_stored(stored, entry, self.executors, self.profile, explain))
        found = check_entry(self._entries[int(number)], self.executors, self.profile, None, explain)
        return list(found)
