"""Lower a quantized .pt2 program to a .pte, and report what was fused or refused, the layouts and the transitions."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from refsim.check.finding import Level
from refsim.check.run import check_bytes, refused_values
from refsim.check.runtime import DEFAULT as RECORDED
from refsim.check.runtime import runtime
from refsim.cli.check import pointer
from refsim.cli.kit.options import RUNTIMES
from refsim.cli.kit.progress import progress
from refsim.cli.kit.target import target_option
from refsim.cli.kit.text import print_table, say, say_all, wrote
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write, strict_json
from refsim.core.counted import counted
from refsim.core.errors import IncompleteError
from refsim.core.folder_write import writing
from refsim.core.plain import plain
from refsim.core.status import DIFFERENT, NOT_LOADED, SAME
from refsim.exec.model import LOWERED
from refsim.formats.targets import DEFAULT, TargetRow, named
from refsim.partition.load import load

FUSED = ("delegate", "node", "operator", "made of")
REFUSED = ("node", "operator", "code", "why")
REFUSALS = ("delegate", "node", "operator", "rule", "what")
DEFECTS = ("delegate", "node", "operator", "what")
STATISTICS = (
    "delegate", "operators", "int8 operators", "float operators", "int8 dispatches", "clones", "clone bytes",
    "constant bytes", "memory bytes", "unshared bytes",
)  # fmt: skip
CHECKED = ("delegate", "node", "operator", "elements", "0 steps", "1 step", "more", "worst")
REPORT = "report.json"
SUFFIX = ".pte"


@verb("lower", "model.pt2 -o lowered")
@click.argument("file")
@click.option(
    "--output",
    "-o",
    type=Written(folder=True),
    metavar="DIR",
    help=f"Where to write {LOWERED}, the delegates and {REPORT}; NAME.pte: that file alone.",
)
@click.option("--force", is_flag=True, help="Write even a file that the runtime will not load.")
@click.option(
    "--block",
    "blocked",
    multiple=True,
    metavar="OPERATOR",
    help="Keep an operator out of delegates, as ExecuTorch's operator_blocklist does; may be repeated.",
)
@click.option(
    "--keep-float",
    "kept",
    multiple=True,
    metavar="NODE",
    help="Keep the quantized operator with this node in float, with the weights of --float; may be repeated.",
)
@click.option(
    "--float", "exact", metavar="FLOAT.pt2", help="The program before it was quantized, for --keep-float."
)
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="First compare every fused operator with torch; write nothing if one differs too much.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Load FILE even if that may run code that it holds; only for files whose maker you know.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that --check draws.")
@click.option("--explain", metavar="NODE", help="Say what became of a node, and how its layouts were chosen.")
@target_option()
@click.option(
    "--runtime",
    "release",
    metavar="NAME",
    help=f"The runtime that must load the file: {RUNTIMES}.",
)
def command(
    file: str,
    output: str | None,
    force: bool,
    blocked: tuple[str, ...],
    kept: tuple[str, ...],
    exact: str | None,
    checked: bool,
    trust: bool,
    seed: int,
    explain: str | None,
    family: TargetRow | None,
    release: str | None,
) -> Result:
    """Partition FILE, a quantized (PT2E) torch.export program; fuse it and choose layouts as ExecuTorch would."""
    if bool(kept) != (exact is not None):
        raise Lacking("give --keep-float NODE and --float FLOAT.pt2 together")
    exported = load(file, trust)
    # torch is there, or load would have said so
    from refsim.partition import report
    from refsim.partition.container import write
    from refsim.partition.lower import lower

    refused = partial(refused_values, release=release) if release is not None else None
    lowered = lower(exported, file, blocked, refused, kept, None if exact is None else load(exact, trust))
    if explain is not None:
        lines = report.explain(lowered, explain)
        return Result({"file": file, "explain": explain, "lines": lines}, partial(say_all, lines))
    row = family or named(DEFAULT)
    built = report.graphs(lowered, row.target(runtime=runtime(release or RECORDED).behaviour))
    content = {"file": file, "target": row.name, **report.report(lowered, built)}
    content["idle_blocks"] = report.idle_blocks(lowered, blocked)
    if checked:
        from refsim.partition.check import check, count

        with progress("operators", count(lowered)) as tell:
            found = check(lowered, seed, tell=tell)
        content["check"] = [report.difference(item) for item in found]
        if not content["check"]:
            raise IncompleteError(
                "lower --check", "no operator to compare", got=file, need="a quantized program"
            )
    wrong = [item for item in content.get("check", ()) if item["worst"] > item["allowed"]]
    made = {f"delegate{n}.bin": one.serialized.blob(file) for n, one in enumerate(lowered.delegates)}
    made[LOWERED] = write(lowered)
    rows = check_bytes(made[LOWERED], file, release or RECORDED)
    errors = [plain(one) for one in rows if one.level is Level.ERROR]
    content |= {"runtime": release or RECORDED, "runtime_errors": errors}
    content["quantized"] = any(delegate.fused for delegate in lowered.delegates)
    files: dict[str, bytes] = {}
    if output is not None and not wrong and (force or not errors):
        files = _write(output, content, made)
    content["files"] = [{"file": name, "bytes": len(data)} for name, data in files.items()]
    status = DIFFERENT if wrong or not content["quantized"] else SAME
    status = NOT_LOADED if errors and not force else status
    return Result(content, partial(print_text, file, content, output), status)


def _write(output: str, content: dict[str, Any], made: dict[str, bytes]) -> dict[str, bytes]:
    """Write a folder, or the program alone; what was written, by name in the folder."""
    if output.endswith(SUFFIX):
        files = {os.path.basename(output): made[LOWERED]}
        atomic_write.write(output, made[LOWERED])
    else:
        files = {REPORT: strict_json.dumps(content, indent=1).encode(), **made}
        with writing(output) as writer:
            for name, data in files.items():
                writer.write(name, data)
    wrote(output, said=True)
    return files


def print_text(file: str, content: dict[str, Any], output: str | None) -> None:
    delegates = content["delegates"]
    say(f"{file}: {counted(len(delegates), 'delegate')}; steps: {', '.join(content['steps'])}")
    say()
    say("fused")
    fused = [(d["delegate"], *_fused(item)) for d in delegates for item in d["fused"]]
    print_table(FUSED, fused, drop=("delegate",))
    for title, key in (("outside of delegates", "refused"), ("quantized, but left in float", "unfused")):
        say()
        say(f"{title}: {len(content[key])}")
        if content[key]:
            print_table(REFUSED, [_refused(item) for item in content[key]], drop=("operator",))
    for operator in content["idle_blocks"]:
        say(
            f"--block {operator} keeps no node out: each is part of a fused operator, which ExecuTorch fuses too"
        )
    if content["defects"]:
        say()
        say(f"wrong on ExecuTorch's runtime: {len(content['defects'])}")
        print_table(
            DEFECTS, [tuple(item[key] for key in DEFECTS) for item in content["defects"]], drop=("delegate",)
        )
    made = [(d["delegate"], item) for d in delegates for item in d["transitions"]]
    say()
    say(f"transitions: {sum(not item['reused'] for _, item in made)}")
    for number, item in made:
        verb = "shares" if item["reused"] else "needs"
        say(
            f"  delegate {number}: {item['source']} is {item['from']}; argument {item['argument']} of "
            f"{item['forced_by']} ({item['operator']}) {verb} {item['clone']} in {item['to']}"
        )
    say()
    statistics = [(d["delegate"], *_statistics(d["statistics"])) for d in delegates]
    print_table(STATISTICS, statistics, drop=("unshared bytes", "clone bytes", "float operators"))
    if "check" in content:
        say()
        say("against torch, in quantization steps")
        print_table(
            CHECKED, [_checked(item) for item in content["check"]], drop=("delegate", "more", "operator")
        )
        wrong = sum(item["worst"] > item["allowed"] for item in content["check"])
        say(f"{counted(len(content['check']), 'operator')} checked, {wrong} wrong (more than 1 step)")
    say()
    say(f"refused by the runtime {content['runtime']}: {len(content['runtime_errors'])}")
    rows = [tuple(row[key] for key in REFUSALS) for row in content["runtime_errors"]]
    if rows:
        print_table(REFUSALS, rows, drop=("delegate",))
    if rows and output is not None and not content["files"]:
        say(f"{output} is not written, since that runtime does not load it; --force writes it")
    if not content["quantized"]:
        say(
            "no quantized operator: nothing was fused, and all of it runs in float; quantize the program first"
        )
    if output is not None and content["files"]:
        folder = os.path.dirname(output) if output.endswith(SUFFIX) else output
        for row in content["files"]:
            say(f"wrote {os.path.join(folder, row['file'])}, {counted(row['bytes'], 'byte')}")
        written = output if output.endswith(SUFFIX) else os.path.join(output, LOWERED)
        say(pointer(written, content["runtime"]), command=True)


def _fused(item: dict[str, Any]) -> tuple[object, ...]:
    parts = " ".join(dict.fromkeys((*item["replaced"], item["quantize"])))
    return (item["node"], item["operator"], "; ".join((parts, *item["notes"])))


def _refused(item: dict[str, Any]) -> tuple[object, ...]:
    detail = f"; {item['detail']}" if item["detail"] else ""
    return (item["node"], item["operator"], item["code"], item["reason"] + detail)


def _statistics(item: dict[str, Any]) -> tuple[object, ...]:
    keys = (
        "operators", "int8_operators", "float_operators", "dispatches", "clones", "clone_bytes", "constant_bytes",
        "memory_bytes", "memory_bytes_unshared",
    )  # fmt: skip
    return tuple(item[key] for key in keys)


def _checked(item: dict[str, Any]) -> tuple[object, ...]:
    steps = item["steps"]
    more = item["elements"] - steps.get("0", 0) - steps.get("1", 0)
    return (
        item["delegate"], item["node"], item["operator"], item["elements"], steps.get("0", 0), steps.get("1", 0),
        more, item["worst"],
    )  # fmt: skip
