"""Profiles as files: what is written is read back, and what is no profile is refused with a typed error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refsim.core.errors import FormatError, LimitError, ParameterError
from refsim.core.qmath import NVIDIA, PROFILES, Profile
from refsim.formats import profiles

OWN = Profile("some device, driver 7", contract=True, tie="away", flush_denormals=False, convert="saturate")


@pytest.mark.parametrize("profile", [*PROFILES.values(), OWN], ids=lambda p: p.name)
def test_written_profiles_are_read_back(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    profiles.write(path, profile, measured={"fma": "fused"})
    assert profiles.read(path) == profile == profiles.profile(path)
    assert json.loads(path.read_text())["measured"] == {"fma": "fused"}
    assert list(tmp_path.iterdir()) == [path]


def test_names_come_before_files() -> None:
    assert profiles.profile("nvidia") is NVIDIA
    with pytest.raises(ParameterError, match="canonical, lavapipe, nvidia, or a file"):
        profiles.profile("no-such-profile")


GOOD = profiles.as_json(OWN)


def changed(**changes: object) -> dict:
    return GOOD | {"profile": GOOD["profile"] | changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "not a profile of this schema; got 'list'"),
        (GOOD | {"schema": 2}, "got 2, need schema 1"),
        ({"schema": 1}, "profile has no name"),
        (profiles.as_json(None), "profile has no name; got None"),
        (changed(name=7), "profile has no name"),
        (changed(contract=1), "fields do not fit; got contract"),
        (changed(tie=None), "fields do not fit; got tie"),
        (changed(tie="up"), "unknown tie"),
        (changed(convert="wraps"), "unknown convert"),
        (changed(more=1), "fields do not fit; got more"),
        (changed(name="nvidia"), "a profile of this name computes otherwise"),
    ],
)
def test_other_content_is_refused(content: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=message) as caught:
        profiles.read(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b" " * (profiles.MAX_BYTES + 1)])
def test_other_bytes_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(data)
    with pytest.raises((FormatError, LimitError)):
        profiles.read(path)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FormatError, match="cannot be read"):
            profiles.read(path)
