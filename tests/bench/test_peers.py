"""The networks that engines are compared on, and what is made of their samples."""

from __future__ import annotations

import pytest

from bench.peers.__main__ import summarize
from bench.peers.engines import REFSIM
from bench.peers.net import U8S8, XNN, Net, works

WORKS = {work.name: work for work in works()}


def test_works_are_what_their_names_say() -> None:
    assert len(WORKS) == len(works())
    macs = {
        "3x3 64->64 56x56": 9 * 64 * 64 * 56 * 56,
        "3x3 256->256 14x14": 9 * 256 * 256 * 14 * 14,
        "1x1 256->1024->256 14x14": 2 * 256 * 1024 * 14 * 14,
        "GEMM 512^3": 512**3,
        "7x7 s2 3->64 224": 7 * 7 * 3 * 64 * 112 * 112,
        "depthwise 3x3 144 56x56": 9 * 144 * 56 * 56,
        "gemv 2048->1000->2048": 2 * 2048 * 1000,
        "add + requantize 803k": 0,
    }
    assert {name: WORKS[name].macs for name in macs} == macs
    # what is known of the published networks
    assert WORKS["ResNet-50 shape"].macs == pytest.approx(4.09e9, rel=0.01)
    assert WORKS["MobileNetV2 shape"].macs == pytest.approx(0.301e9, rel=0.01)
    for work in works():
        assert all(less in WORKS for less in work.less)
        for net in (net for net in (work.one, work.many) if isinstance(net, Net)):
            assert all(max(layer.inputs) <= n for n, layer in enumerate(net.layers)), "reads what comes later"
            assert all(min(shape) > 0 for shape in net.shapes())


def test_ratios_are_of_rounds_and_by_threads() -> None:
    samples = {
        (REFSIM, 1): [2.0, 4.0, 2.0],
        (XNN, 1): [4.0, 8.0, 6.0],
        (REFSIM, 2): [1.0, 2.0, 2.0],
        (U8S8, 2): [0.5, 1.0, 1.0],
    }
    found = summarize(WORKS["GEMM 512^3"], samples)
    assert found["threads"]["1"]["ratios"][XNN]["median"] == 2.0
    assert set(found["threads"]["1"]["ratios"]) == {XNN}
    assert found["threads"]["2"]["ratios"][U8S8]["median"] == 0.5
    assert found["threads"]["2"]["seconds"][REFSIM]["median"] == 2.0
    assert found["scaling"]["2"][REFSIM]["median"] == 2.0
