"""Options that several verbs share, and the types of their values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from refsim.check.runtime import DEFAULT, releases
from refsim.cli.kit.document import Document, Made
from refsim.cli.kit.written import Written, can_be_written
from refsim.core import choices
from refsim.core.layout import OTHER_NAMES, Layout
from refsim.core.no_clobber import must_be_new
from refsim.formats import layout_file

F = TypeVar("F", bound=Callable[..., Any])

#: How many differences are listed unless --limit says so.
LIMIT = 10
#: The names of executors, for help texts.
EXECUTORS = "cpu, cpu:emulated, gpu, gpu:N, spv:DIR, wgsl:DIR or NAME[:ARGUMENTS] of another package"


class LayoutType(click.ParamType):
    """A memory layout by its full or short name, its order of dims, or from a file."""

    name = "layout"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Layout:
        return layout_file.named(value) if isinstance(value, str) else value


class New(Written):
    """A path where something new is made: what is there is never written over.

    A folder that is there is refused before the verb begins. The line `rerun:` then names the next free one.
    ``unless`` is the option with which the path must be there.
    """

    def __init__(self, folder: bool = True, unless: str = "") -> None:
        super().__init__(folder)
        self.unless = unless
        self.name = "folder" if folder else "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = str(value)
        if self.folder:
            must_be_new(path)
        if self.folder or not os.path.isdir(path):
            can_be_written(path, self.folder)
        document = None if ctx is None else ctx.find_object(Document)
        if document is not None and param is not None:
            document.made[path] = Made(tuple(param.opts), self.folder, self.unless)
        return path


class ProfileType(click.ParamType):
    """A numerics profile by its name, or from a file that a probe saved."""

    name = "profile"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from refsim.formats.profiles import profile  # not at start-up: a compiler comes with it

        return profile(value) if isinstance(value, str) else value


def profile_option(what: str, *names: str, **more: Any) -> Callable[[F], F]:
    """The option --profile, which gives a `Profile`: by name, or from a file. ``what`` says whose numerics it is."""
    text = f"The numerics that {what}: canonical, lavapipe, nvidia, or a file that refsim probe saved."
    return click.option("--profile", *names, type=ProfileType(), metavar="NAME", **{"help": text, **more})


#: Of verbs that judge what a device wrote.
device_profile_option = profile_option("the device may have")
#: Of verbs that run a file.
executor_profile_option = profile_option("the executors follow")


class Numbers(click.ParamType):
    """Whole numbers with commas or x between them: a shape or an index."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"-?\d{1,10}([x,]-?\d{1,10}){0,15}", value):
            self.fail(f"{value!r} is not a {self.name}, such as 1,16,8,8 or 1x16x8x8", param, ctx)
        return tuple(int(part) for part in re.split("[x,]", value))


#: What --runtime takes, for help texts.
RUNTIMES = f"{choices.listed(releases())}, or a JSON file that describes one"

#: The option --runtime, which gives a name or a path: `refsim.check.runtime.runtime` makes it a description.
runtime_option = click.option(
    "--runtime",
    "release",
    metavar="NAME",
    default=DEFAULT,
    show_default=True,
    help=f"The runtime that is meant: {RUNTIMES}.",
)


def search_seconds_option(default: float | None, text: str = "How long to search.") -> Callable[[F], F]:
    """The option --seconds, which limits a search."""
    return click.option(
        "--seconds",
        type=click.FloatRange(1, 86_400),
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=text,
    )


def inputs_options(function: F) -> F:
    """The options --input and --random; a model needs one of them."""
    drawn = click.option(
        "--random", "seed", type=click.IntRange(0), help="Draw the inputs from this seed instead."
    )
    what = "The inputs: an .npz with in0, in1..., or an .npy for a single input."
    return click.option("--input", "-i", "inputs", metavar="FILE", help=what)(drawn(function))


all_bytes_option = click.option(
    "--all-bytes", is_flag=True, help="Also compare padding that a device may fill with anything."
)

limit_option = click.option(
    "--limit",
    type=click.IntRange(0, 10_000),
    default=LIMIT,
    show_default=True,
    help="How many differences to list.",
)


def search_option(function: F) -> F:
    """The option --search; it holds for all that the verb starts, and ends with it."""

    def hold(ctx: click.Context, param: click.Parameter, seconds: float | None) -> None:
        from refsim.bytediff import search  # not at start-up: kernels come with it

        if seconds is not None:
            before = os.environ.get(search.VARIABLE, "")  # an empty one says nothing
            ctx.call_on_close(lambda: os.environ.update({search.VARIABLE: before}))
            os.environ[search.VARIABLE] = str(seconds)

    return click.option(
        "--search",
        type=click.FloatRange(0),
        metavar="SECONDS",
        expose_value=False,
        callback=hold,
        help="How long to look for the change of a kernel that gives a buffer's wrong bytes (10); 0: not at all.",
    )(function)


html_option = click.option(
    "--html", type=Written(), metavar="FILE", help="Also write the report as a self-contained HTML page."
)


def report_options(function: F) -> F:
    """The options --limit, --search and --html, of a verb that reports what differs."""
    return limit_option(search_option(html_option(function)))


def layout_option(required: bool = True) -> Callable[[F], F]:
    return click.option(
        "--layout",
        "-l",
        type=LayoutType(),
        required=required,
        help=f"Memory layout: 4W4C, 4C1W, 4C, 4W, 4H4W, W, H, C; {OTHER_NAMES}; an order of dims, or a .toml with it.",
    )


actual_layout_option = click.option(
    "--actual-layout",
    type=LayoutType(),
    metavar="LAYOUT",
    help="The layout of the actual buffer, if it is another, as for pack -l: its padding is not compared.",
)


def shape_option(required: bool = True) -> Callable[[F], F]:
    return click.option(
        "--shape",
        "-s",
        type=Numbers("shape"),
        required=required,
        help="Logical sizes, outermost dim first: 1,16,8,8.",
    )


def output_option(what: str, required: bool = True) -> Callable[[F], F]:
    text = f"Where to write {what}."
    return click.option("--output", "-o", type=Written(), metavar="FILE", required=required, help=text)


def folder_option(what: str, *names: str, required: bool = True, **more: Any) -> Callable[[F], F]:
    """The option, --output without names, whose value is a new folder. ``what``: its help, from the first word on."""
    found = names or ("--output", "-o")
    return click.option(
        *found, type=New(), metavar="DIR", required=required, help=f"{what}; a new folder.", **more
    )


threads_option = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Threads of the executor cpu. The bytes are the same for any number.",
)

executors_option = click.option(
    "--executor",
    "-x",
    "executors",
    metavar="NAMES",
    default="cpu",
    show_default=True,
    help=f"{EXECUTORS}; separate several by commas.",
)

root_option = click.option(
    "--root", metavar="DIR", help="Another corpus than that of the checkout or of refsim-golden."
)

partial_option = click.option(
    "--partial",
    is_flag=True,
    help="Also accept buffers of a part of the run, or of another run; without it the status is 2.",
)


more_option = click.option(
    "--more",
    nargs=2,
    multiple=True,
    metavar="EXPOSED OUTPUTS",
    help="Another part that expose --chunk wrote, and its outputs of the same run.",
)


def sure_option(function: F) -> F:
    from refsim.device.other_inputs import SURE  # not at start-up: bytediff comes with it

    return click.option(
        SURE,
        "sure",
        is_flag=True,
        help="The inputs are those of the run: look for no others where an operator that reads them is wrong.",
    )(function)
