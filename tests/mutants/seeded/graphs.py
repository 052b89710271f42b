"""Bugs seeded into what runs whole graphs, and into the passes that make them."""

# ruff: noqa: E501  (anchors are quoted as they stand in the sources)

from __future__ import annotations

from mutants.mutant import MODEL, NETWORK, Mutant, seeded

_SESSION, _MEMORY, _PLAN, _LIVES, _GRAPH = (
    "gpu/session.py",
    "gpu/run_memory.py",
    "refsim/exec/cpu/plan.py",
    "refsim/core/lifetimes.py",
    "refsim/graph/build.py",
)
_PATTERNS = "refsim/partition/patterns/"
_LINEAR, _ADD, _MATCH = _PATTERNS + "linear.py", _PATTERNS + "add.py", _PATTERNS + "_match.py"
_STALE = "stale or foreign buffer"


MIXED = "mixed_ops"
network, cpu, gpu = seeded("lower", "cpu", NETWORK), seeded("cpu", "cpu", MODEL), seeded("gpu", "gpu", MODEL)

_COUNTED = (
    _GRAPH,
    "result = plain(graph, operator.args[-1])",
    'result = plain(graph, operator.args[8 if operator.name == "et_vk.q8ta_add.default" else -1])',
)

# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # --- the passes: what they give is the same for every executor -----------------------------------------
    network("G1-order", "G1", "AddmmByInput", ("not fused",), (_LINEAR, "\"aten.addmm.default\": (1, 2, 0, False)", "\"aten.addmm.default\": (0, 1, None, False)")),
    network("G1-bias", "G1", "AddmmByInput", ("channel constants misplaced", "bias left out"), (_LINEAR, "\"aten.addmm.default\": (1, 2, 0, False)", "\"aten.addmm.default\": (1, 2, None, False)")),
    network("G1-pass", "G1", "Addmm", ("channel constants misplaced", "bias left out"), ("refsim/partition/passes/weights.py", "\"aten.addmm.default\": (1, 2, 0)", "\"aten.addmm.default\": (1, 2, None)")),
    *(network(f"G2-{name}", "G2", name, ("another tensor's quantization",),
        (_LINEAR, "        *source.parameters,\n", "        *(source.source.args[1:3] if target_name(source.source).startswith(\"et_vk.q8ta_linear\") else source.parameters),\n"))
      for name in ("ChainedLinears", "ChainedGemvs")),
    network("G3-add", "G3", "Residuals", ("b: not an int8",), (_ADD, "(a.source, b.source, *parameters", "(a.source, b.node, *parameters")),
    network("G4-add", "G4", "AddAlpha", ("output: not an int8",), _COUNTED),
    network("G4-clone", "G4", "Residuals", ("output: not an int8",), (_GRAPH, "result = plain(graph, operator.args[-1])", "result = plain(graph, operator.args[-1 if op is None else len(op.args) - 1])")),
    network("G5-add", "G5", "AddRelu", ("relu dropped or added",), (_ADD, "return zp == INT8_RANGE[0]", "return True")),
    network("G6-gemv", "G6", "ChainedGemvs", ("without an implementation", "nothing computes this operator"), (_MATCH, "return Operator(spec.serialized,", "return Operator(spec.serialized.replace(\"gemv\", \"gemv_relu\"),")),
    # --- reading graphs -------------------------------------------------------------------------------------
    cpu("G4-read", "G4", MIXED, ("output: not an int8",), _COUNTED),
    gpu("G4-read", "G4", MIXED, ("output: not an int8",), _COUNTED),
    # --- the plan of the native executor ------------------------------------------------------------------------
    cpu("S3-last", "S3", MIXED, (_STALE,), (_LIVES, "            last[value] = number\n", "            last.setdefault(value, number)\n")),
    cpu("S3-inplace", "S3", MIXED, (_STALE,), (_LIVES, "self.first <= other.last and other.first <= self.last", "self.first < other.last and other.first < self.last")),
    cpu("S1-plan", "S1", MIXED, (_STALE,), (_PLAN, "[job for step in steps for job in step.jobs], threads, addresses", "[job for step in (*steps[1:], steps[0]) for job in step.jobs], threads, addresses")),
    # --- the recorded sequence of the device's executor ---------------------------------------------------
    gpu("S1-download", "S1", MIXED, (_STALE, "nothing written"), (_MEMORY, "order.add((\"copy\", (block, self._down, down[value])), [block], [])", "order.operations.insert(2, (\"copy\", (block, self._down, down[value])))")),
    gpu("S1-dispatch", "S1", MIXED, (_STALE,),
        (_MEMORY, "return order.add((\"dispatch\", arguments), inputs, [output])", "order.operations.insert(max(0, len(order.operations) - 2), (\"dispatch\", arguments))\n        return 0")),
    gpu("S1-upload", "S1", MIXED, (_STALE,),
        (_MEMORY, "order.add((\"copy\", (source, self._memory, inner)), [source], [target])", "self.__dict__.setdefault(\"late\", []).append((\"copy\", (source, self._memory, inner)))"),
        (_MEMORY, "self._turns.append((order.operations, steps))", "self._turns.append((order.operations + self.__dict__.pop(\"late\", []), steps))")),
    gpu("S3-pool", "S3", MIXED, (_STALE, "wrote before the buffer"), (_MEMORY, "Lifetime(-1, len(jobs)) if name in own else Lifetime(first[name], last[name])", "Lifetime(first[name], first[name])")),
    gpu("S3-upload", "S3", MIXED, (_STALE,), (_SESSION, "            if value in memory.writes:\n", "            again, memory.__dict__[\"ran\"] = memory.__dict__.get(\"ran\", False), True\n            if value in memory.writes and not again:\n")),
    gpu("I5-constants", "I5", MIXED, ("stale constant",), (_MEMORY, "constants[name] = known[digests[name]] = (memory, at, held.nbytes)\n", "constants[name] = constants.setdefault((held.nbytes, str(name)[-9:]), (memory, at, held.nbytes))\n")),
)
# fmt: on
