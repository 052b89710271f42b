"""Tagging: which layouts are chosen, where clones go, what they cost; and what identities that take int8 save."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from refsim.core.layout import layout
from refsim.partition.features import FEATURES
from refsim.partition.fx_program import FxProgram
from refsim.partition.lower import LoweredDelegate, lower
from refsim.partition.nodes import CLONE, CLONE_DIM_ORDER, VIEW_COPY, target_name
from refsim.partition.passes import tag_layouts
from refsim.partition.passes.tag_layouts import REPR
from refsim.partition.repset.sets import ANY_STORAGE, Storage, TensorRepr

from .networks import CLONES, IDENTITIES, NETWORKS, program
from .quantize import quantize

DOC = Path(__file__).parents[2] / "docs" / "partitioner.md"
#: Identities as they would be if they took float layouts only.
FLOAT_IDENTITIES = {
    **FEATURES,
    **{
        name: replace(FEATURES[name], inputs=ANY_STORAGE, outputs=ANY_STORAGE)
        for name in (CLONE, CLONE_DIM_ORDER, VIEW_COPY, "aten.alias_copy.default")
    },
}


def delegate(name: str) -> LoweredDelegate:
    (only,) = lower(program(name)[0], name).delegates
    return only


def layouts_of(found: LoweredDelegate) -> dict[str, str]:
    return {
        node.name: str(node.meta[REPR].memory_layout)
        for node in found.program.calls()
        if isinstance(node.meta[REPR], TensorRepr)
    }


def test_residuals() -> None:
    """What feeds a pointwise convolution is 4W4C, what feeds others CONV2D; additions take both as they are."""
    found = delegate("Residuals")
    assert layouts_of(found)["quantize_per_tensor"] == "4W4C"
    (transition,) = found.transitions
    assert transition.source == "q8ta_add_1" and transition.operator == "et_vk.q8ta_conv2d_pw.default"
    assert str(transition.given) == "CONV2D" and str(transition.needed) == "4W4C"
    clones = [n for n in found.program.calls() if target_name(n) == CLONE]
    assert [n.name for n in clones] == [transition.clone] and str(clones[0].args[0]) == "q8ta_add_1"


@pytest.mark.parametrize("name", NETWORKS)
def test_every_reader_gets_what_it_takes(name: str) -> None:
    """After tagging each tensor is in a layout that each of its readers allows, and no clone is one too many."""
    for found in lower(program(name)[0], name).delegates:
        for node in found.program.calls():
            if target_name(node) not in FEATURES:
                continue
            sets = FEATURES[target_name(node)].op_repsets(node)
            for index, arg in enumerate(node.args):
                if isinstance(arg, torch.fx.Node) and isinstance(arg.meta.get(REPR), TensorRepr):
                    given = arg.meta[REPR]
                    if target_name(node) != CLONE and given.storage_type is not Storage.DEFAULT:
                        assert given in sets.args[index], (node, index, given)
        clones = [n for n in found.program.calls() if target_name(n) == CLONE]
        assert len(clones) == sum(not t.reused for t in found.transitions)
        assert len({(n.args[0], n.meta[REPR]) for n in clones}) == len(clones)
        assert all(n.meta[REPR] != n.args[0].meta[REPR] for n in clones)


class SharedClone(nn.Module):
    """Two pointwise convolutions read what a general one needs in another layout."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.c, self.d = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.a(x)
        return self.b(y), self.c(y), self.d(y)


def test_one_clone_serves_all_who_need_it() -> None:
    exported = quantize(SharedClone(), (torch.randn(1, 8, 6, 6),))
    (found,) = lower(exported).delegates
    first, second = found.transitions
    assert (first.reused, second.reused) == (False, True) and first.clone == second.clone
    assert [target_name(n) for n in found.program.calls()].count(CLONE) == 1


def test_the_budget_bounds_the_search() -> None:
    """With nobody asked, producers alone decide: the pointwise convolutions need clones then."""
    exported = program("Residuals")[0]
    (found,) = lower(exported).delegates
    fused = FxProgram(found.program.graph, found.program.constants)
    untagged = remove_clones(fused)
    few = tag_layouts.run(untagged, budget=1)
    many = tag_layouts.run(untagged)
    assert len(few.transitions) > len(many.transitions) == 1


def remove_clones(given: FxProgram) -> FxProgram:
    given = given.copy()
    for node in given.calls():
        if target_name(node) == CLONE:
            node.replace_all_uses_with(node.args[0])
    for node in given.graph.nodes:
        node.meta.pop(REPR, None)
    return given.clean()


def test_choices_tell_the_story() -> None:
    found = delegate("Residuals")
    out = found.choices["q8ta_conv2d_pw"][-1]
    assert out.tensor == "output" and out.chosen.memory_layout is layout("CONV2D")
    assert len(out.declared) > 1 and len(out.after_users) == 1
    assert "its users leave {CONV2D}" in str(out)


def test_several_outputs() -> None:
    found = delegate("Classifier")
    nodes = {target_name(n): n for n in found.program.calls()}
    pool = nodes["aten.max_pool2d_with_indices.default"]
    assert [str(r) for r in pool.meta[REPR]] == ["CHANNELS_PACKED:TEXTURE_3D"] * 2
    assert str(nodes["getitem"].meta[REPR]) == "CHANNELS_PACKED:TEXTURE_3D"


# --- identities ---


def with_identities() -> FxProgram:
    """FourPixelShuffles, fused and not yet tagged, with an identity behind each pixel shuffle."""
    given = remove_clones(delegate("FourPixelShuffles").program)
    shuffles = [n for n in given.calls() if target_name(n) == "et_vk.q8ta_pixel_shuffle.default"]
    for node, (base, overload) in zip(shuffles, IDENTITIES, strict=True):
        (reader,) = node.users
        target = getattr(getattr(torch.ops.aten, base), overload)
        shape = [list(node.meta["val"].shape)] if base == "view_copy" else []
        reader.replace_input_with(node, given.call(reader, target, (node, *shape), node.meta["val"]))
    return given


def test_identities_that_take_int8_save_transitions() -> None:
    """The table of docs/partitioner.md; tests/interop counts the same clones in ExecuTorch."""
    found = {}
    for name, features in (("float layouts", FLOAT_IDENTITIES), ("float and int8 layouts", FEATURES)):
        tagged = tag_layouts.run(with_identities(), features)
        clones = [n for n in tagged.program.calls() if target_name(n) == CLONE]
        transitions = sum(not t.reused for t in tagged.transitions)
        assert len(clones) == CLONES[name]
        found[name] = [str(transitions), str(len(clones))]
    rows = re.findall(r"^\| (float.* layouts) \| (\d+) \| (\d+) \|$", DOC.read_text(), re.M)
    assert {name: counts for name, *counts in rows} == found


def test_copies_of_the_program_are_removed_before_that() -> None:
    operators = [target_name(n) for n in delegate("FourPixelShuffles").program.calls()]
    assert operators.count("et_vk.q8ta_pixel_shuffle.default") == 4
    assert not {CLONE, CLONE_DIM_ORDER} & set(operators)
