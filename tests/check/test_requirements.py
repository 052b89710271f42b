"""The rows of a runtime's description: each is broken by a small file, and kept by its twin."""

from __future__ import annotations

import pytest
from check.broken import PAIRS, Pair
from check.small_files import call

from refsim.check.finding import Level
from refsim.check.rules.requirements import breaks
from refsim.check.run import check_bytes
from refsim.check.runtime import releases, runtime
from refsim.check.subject import blob_method
from refsim.check.words import WORDS
from refsim.formats.vkgraph.read import read_blob


def rules_of(data: bytes) -> set[str]:
    return {finding.rule for finding in check_bytes(data)}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.rule}-{pair.operator}")
def test_a_broken_requirement_is_found_and_its_twin_is_not(pair: Pair) -> None:
    found = [f for f in check_bytes(call(pair.operator, *pair.bad)) if f.rule == pair.rule]
    assert len(found) >= 1
    assert found[0].place.operator == pair.operator and (found[0].place.delegate, found[0].place.node) == (
        0,
        0,
    )
    said = (found[0].what, found[0].why, found[0].fix)
    assert all(text and not set("{}") & set(text) for text in said)
    if pair.good:
        data = call(pair.operator, *pair.good)
        assert pair.rule not in rules_of(data)
        assert not [f for f in check_bytes(data) if f.level is Level.ERROR and f.rule != "packed-border"]


@pytest.mark.parametrize("release", releases())
def test_every_row_is_broken_by_some_file(release: str) -> None:
    calls = [
        one
        for pair in PAIRS
        for delegate in blob_method(read_blob(call(pair.operator, *pair.bad))).delegates
        for one in delegate.calls
    ]
    rows = runtime(release).requirements
    whole = [
        row for row in rows if not any(one.name in row["operators"] and breaks(one, row) for one in calls)
    ]
    assert not [(row["rule"], row["what"]) for row in whole]


def test_rows_use_words_that_there_are() -> None:
    def words(condition: dict) -> set[str]:
        ((name, inner),) = condition.items()
        return words(inner) if name == "not" else {name}

    for release in releases():
        rows = runtime(release).requirements
        shaders = [row for found in runtime(release).shader_of.values() for row in found]
        used = {
            w
            for row in (*rows, *shaders, *runtime(release).refusals)
            for key in ("when", "need")
            for c in row.get(key, ())
            for w in words(c)
        }
        assert used <= set(WORDS)
