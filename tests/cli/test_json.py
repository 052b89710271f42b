"""What --json prints: one object as the schema says, strictly JSON, whether a command succeeds or fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from json_schema import DESCRIBED
from verbs import commands

from refsim.cli.kit.document import SCHEMA
from refsim.core import strict_json

MODELS = Path(__file__).parents[1] / "data" / "models"
GEMV = MODELS / "linear_head_gemv.pte"
GIVEN = f"{GEMV} -i {MODELS}/linear_head_gemv.io.npz"


def test_every_verb_is_described_and_every_key_has_a_meaning() -> None:
    assert set(DESCRIBED["$defs"]["verbs"]) == {name for name, _ in commands()}

    def lacking(part: object, path: str) -> list[str]:
        if isinstance(part, list):
            return [one for each in part for one in lacking(each, path)]
        if not isinstance(part, dict):
            return []
        rows = part.get("properties", {})
        found = [
            f"{path}.{key}" for key, row in rows.items() if "description" not in row and "const" not in row
        ]
        return found + [one for key, each in part.items() for one in lacking(each, f"{path}.{key}")]

    assert not lacking(DESCRIBED["$defs"], "")


#: What somebody else's names fill: an operator's parameters, limits of Vulkan, a sidecar, the schema itself.
OPEN = {"parameters", "limits", "values", "json_schema"}


def test_nothing_else_is_open() -> None:
    def found(part: object, name: str) -> set[str]:
        if isinstance(part, list):
            return set().union(*(found(each, name) for each in part))
        if not isinstance(part, dict):
            return set()
        here = (
            part.get("type") == "object"
            and part.get("additionalProperties", "properties" not in part) is True
        )
        return set().union(
            {name} if here else (),
            *(found(each, name if key == "items" else key) for key, each in part.items()),
        )

    assert found(DESCRIBED["$defs"], "") == OPEN


# verbs with tests of their own that read JSON are not repeated here: each `.json` is checked against the schema
@pytest.mark.parametrize(
    "line",
    [
        f"run {GIVEN} --golden {MODELS}/linear_head_gemv.dump.zip --memory",
        f"inspect {GEMV} --plan",
        "golden export q8ta_relu --size small --layout 4W --pte out",
        "golden regen q8ta_relu --dry-run",
        pytest.param("mutate --random 3 --list", marks=pytest.mark.long),
        "schema",
    ],
    ids=lambda line: " ".join(line.split()[:2]).rpartition("/")[2],
)
def test_the_object_is_as_the_schema_says(line: str, tmp_path: Path, monkeypatch, refsim) -> None:
    monkeypatch.chdir(tmp_path)
    done = refsim(f"{line} --json")
    content = done.json
    assert (done.status, done.err) == (0, "") and list(content)[:3] == ["verb", "schema", "status"]
    assert (content["schema"], content["status"]) == (SCHEMA, 0) and "error" not in content


def test_a_failure_is_an_object_too(refsim) -> None:
    done = refsim("golden verify q8ta_ad --json")
    content = done.json
    error = content.pop("error")
    assert content == {"verb": "golden verify", "schema": SCHEMA, "status": 2} and done.status == 2
    assert (error["type"], error["where"], error["got"]) == ("ParameterError", "golden verify", "q8ta_ad")
    assert error["message"] in done.err and error["need"].endswith("did you mean q8ta_add?")
    for line, kind in (("locate", "UsageError"), ("run none.pte --random 0", "FormatError")):
        assert refsim(f"{line} --json").json["error"]["type"] == kind
    assert refsim("rnu --json").json["verb"] is None
    assert refsim("diff a -- --json").out == ""  # the name of a file


def test_a_comparison_of_too_little_says_what_it_compared_and_why(tmp_path: Path, refsim) -> None:
    assert refsim(f"run {GIVEN} --dump q8ta_linear_gemv {tmp_path}/few").status == 0
    done = refsim(f"run {GIVEN} --golden {tmp_path}/few --json")
    assert done.status == done.json["status"] == 2 and done.json["same"] is False
    assert done.json["error"]["type"] == "IncompleteError" and done.json["not_compared"]


def test_what_is_no_number_is_a_string(tmp_path: Path, refsim) -> None:
    for name, first in (("a", np.inf), ("b", np.nan)):
        held = np.array([first, -np.inf, 1, 2, 3], np.float32)
        held[1] = held[1] if name == "a" else 0
        held.tofile(tmp_path / f"{name}.bin")
    done = refsim(f"diff {tmp_path}/a.bin {tmp_path}/b.bin -l W -s 5 --json")
    assert done.status == 1
    rows = [(row["expected"], row["actual"]) for row in done.json["report"]["differences"]]
    assert rows == [("Infinity", "NaN"), ("-Infinity", 0.0)]
    assert strict_json.dumps({"a": (1.5, float("nan"))}) == '{"a": [1.5, "NaN"]}'
