"""Shared by all commands: the console, the queue, options for products, suites of products."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import pyopencl as cl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..api.prepare import check_supported
from ..device.discovery import DEVICE_VARIABLE, choose_device
from ..device.traits import typical_traits
from ..errors import ArgumentError, shown
from ..families.registry import FAMILIES
from ..problem.precision import DTYPES, result_dtypes
from ..problem.problem import ACTIVATIONS
from ..problem.shape import LAYOUTS, WANTED, GemmShape, Layout
from ..resources import names_file
from ..selection.database import load_database
from ..selection.overrides import choose_for, parse_assignment

Parsed = TypeVar("Parsed")
Command = TypeVar("Command", bound=Callable[..., Any])


def open_console(file_width: int = 120, **options: Any) -> Console:
    """A console as wide as $COLUMNS or the terminal; else, in a file or pipe, as `file_width`."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if is_known else file_width
    return Console(width=width, markup=False, **options)


def examples(*calls: str) -> str:
    """The examples at the end of a command's help."""
    heading = "Example:" if len(calls) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  python -m pyclgemm {call}" for call in calls)])


def command(*calls: str) -> Callable[[Callable[..., Any]], click.Command]:
    """`click.command`, with examples of its calls."""
    return click.command(epilog=examples(*calls))


def open_progress(console: Console) -> Progress:
    """Progress bars; a task shows its description, its steps, its current step, its duration."""
    description, step = TextColumn("{task.description}"), TextColumn("{task.fields[current]}")
    columns = (description, BarColumn(), MofNCompleteColumn(), step, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def add_task(progress: Progress, description: str, total: int) -> Callable[..., None]:
    """Add a task; returns a function that advances it and shows the next step."""
    task = progress.add_task(description, total=total, current="")
    return lambda current="": progress.update(task, advance=1, current=str(current))


def open_queue(device: str | None) -> tuple[cl.Context, cl.CommandQueue]:
    """A context on a device, as `choose_device` finds it, and a queue, which needs the context."""
    context = cl.Context([choose_device(device).device])
    return context, cl.CommandQueue(context)


def parsed(parse: Callable[[str], Parsed], text: str, option: str | None = None) -> Parsed:
    """Parse an argument; an `ArgumentError` becomes a usage error of click, with the option."""
    try:
        return parse(text)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def parse_shape(text: str, *, plain: bool = False) -> GemmShape:
    """Parse one product as `GemmShape.parse` does; if `plain`, only MxNxK is taken."""
    shape = GemmShape.parse(text)
    if shape is None or (plain and not shape.plain):
        wanted = "MxNxK, such as 1024x1024x512" if plain else WANTED
        raise click.BadParameter(f"{shown(text)} is not of the form {wanted}")
    return shape


def file_option(
    name: str, text: str, *, metavar: str = "FILE", exists: bool = False
) -> Callable[[Command], Command]:
    """An option that names a file; `text` is its help."""
    kind = click.Path(exists=exists, dir_okay=False, path_type=Path)
    return click.option(name, type=kind, metavar=metavar, help=text)


device_option = click.option(
    "--device",
    metavar="RANK|NAME",
    help="A rank from `devices`, or a part of the name of a device or platform; by default what "
    f"${DEVICE_VARIABLE} names, else the best device.",
)
dtype_option = click.option("--dtype", type=click.Choice(DTYPES), default="float32")
precision_option = click.option(
    "--precision", help="JAX's name of the arithmetic, such as F32_F32_F32."
)
parameters_option = click.option(
    "--config",
    "parameters",
    metavar="NAME=VALUE",
    type=lambda text: parsed(parse_assignment, text),
    multiple=True,
    help="Replace a parameter of the configuration; may be given several times.",
)

_architecture_option = click.option(
    "--architecture",
    metavar="NAME",
    help="Use a typical device of sm_90, gfx1012, x86-64-v4, ... instead of a present one.",
)

#: The options that `GemmShape.product` takes by these names.
_DESCRIBED = ("dtype", "precision", "reads_c", "bias", "activation", "result_dtype")
_OPTIONS = (
    dtype_option,
    click.option("--trans-a", is_flag=True, help="A is stored (k, m)."),
    click.option("--trans-b", is_flag=True, help="B is stored (n, k)."),
    click.option("--conjugate-a", is_flag=True, help="Conjugate transpose of A, stored (k, m)."),
    click.option("--conjugate-b", is_flag=True, help="Conjugate transpose of B, stored (n, k)."),
    click.option("--with-c", "reads_c", is_flag=True, help="Add beta C."),
    click.option("--bias", is_flag=True, help="Add a bias of n entries to every row."),
    click.option("--activation", type=click.Choice(tuple(ACTIVATIONS))),
    precision_option,
    click.option(
        "--result-dtype",
        help="Element type of result, C and bias, where operands have a choice: float16 and "
        "bfloat16 also give float32.",
    ),
    click.option(
        "--path", type=click.Choice(("auto", *FAMILIES)), default="auto", help="The kernel family."
    ),
    parameters_option,
    device_option,
)


def product_options(command: Callable[..., None], *, chosen: bool = False) -> Callable[..., None]:
    """Give a command the options of a product; it is called with `Product`, path, parameters.

    If `chosen`, it is called with product, choice and traits instead: those of the named device, or
    of a typical one.
    """
    argument = click.argument("shape", metavar="MxNxK[:NT][+7][*100]", type=parse_shape)

    @functools.wraps(command)
    def wrapped(
        shape: GemmShape,
        path: str,
        parameters: tuple[tuple[str, int], ...],
        trans_a: bool,
        trans_b: bool,
        conjugate_a: bool,
        conjugate_b: bool,
        **options: Any,
    ) -> None:
        described = {name: options.pop(name) for name in _DESCRIBED}
        allowed = result_dtypes(described["dtype"])
        if described["result_dtype"] not in (None, *allowed):
            raise click.BadParameter(
                f"{described['result_dtype']!r}; the result of {described['dtype']} operands is "
                f"{' or '.join(allowed)}",
                param_hint="--result-dtype",
            )
        letters = ""
        flags_by_name = {"a": (trans_a, conjugate_a), "b": (trans_b, conjugate_b)}
        for stored_as, (name, flags) in zip(shape.layout, flags_by_name.items(), strict=True):
            if all(flags):
                raise click.UsageError(f"--trans-{name} and --conjugate-{name} exclude each other")
            letters += "T" if any(flags) else stored_as
        stored = replace(shape, layout=cast(Layout, letters))
        product = stored.product(conjugate="a" * conjugate_a + "b" * conjugate_b, **described)
        override = (None if path == "auto" else path, dict(parameters))
        if not chosen:
            command(product, *override, **options)
            return
        device, architecture = options.pop("device"), options.pop("architecture")
        if device is not None and architecture is not None:
            raise click.UsageError("--device and --architecture exclude each other")
        traits = typical_traits(architecture) if architecture else choose_device(device).traits
        assert traits is not None
        check_supported(product.problem.dtype, product.problem.precision, traits)
        command(*choose_for(product, traits, load_database(), *override), traits, **options)

    for option in reversed((argument, *_OPTIONS, *[_architecture_option] * chosen)):
        wrapped = option(wrapped)
    return wrapped


choice_options = functools.partial(product_options, chosen=True)


#: Largest size of a file of shapes, in bytes.
_LARGEST_FILE = 2**20


def _spread(count: int = 192, largest: int = 8192) -> tuple[GemmShape, ...]:
    """Quasirandom sizes, uniform in their logarithms, with all layouts in turn."""
    # M. Roberts, "The unreasonable effectiveness of quasirandom sequences" (2018).
    root = 1.2207440846057596  # of x**4 == x + 1
    shapes = []
    for index in range(count):
        parts = [(0.5 + (index + 1) / root**power) % 1.0 for power in (1, 2, 3)]
        m, n, k = (max(1, round(largest**part)) for part in parts)
        shapes.append(GemmShape(m, n, k, LAYOUTS[index % len(LAYOUTS)]))
    return tuple(shapes)


#: The suites by name.
SUITES: dict[str, tuple[GemmShape, ...]] = {
    "square": tuple(
        GemmShape(size, size, size) for size in (256, 512, 1000, 1024, 2048, 4096, 8192)
    ),
    # Layers of transformers and classifiers.
    "dense": tuple(
        GemmShape(batch, outputs, inputs)
        for inputs, outputs in ((768, 3072), (3072, 768), (1024, 1024), (4096, 4096))
        for batch in (8, 64, 128, 512)
    ),
    # One or two sizes are far smaller than the third: few rows, tall matrices, large k.
    "skinny": (
        *(GemmShape(m, size, size) for size in (1024, 4096) for m in (1, 2, 4, 8, 16, 32)),
        GemmShape(8192, 128, 128), GemmShape(65536, 64, 64), GemmShape(64, 65536, 64),
        GemmShape(4096, 1, 4096), GemmShape(64, 64, 65536), GemmShape(16, 16, 100_000),
    ),
    # Transposed operands and odd leading dimensions, with k from 2 to 7001.
    "layouts": (
        *(
            GemmShape(*sizes, layout)
            for layout in LAYOUTS[1:]
            for sizes in (
                (83, 6627, 1085), (2501, 2003, 13), (301, 255, 101), (33, 45, 7001),
                (1201, 803, 1101),
            )
        ),
        # Bound by stores of single elements.
        GemmShape(4563, 1559, 2), GemmShape(4563, 1559, 2, "NT"),
        GemmShape(301, 255, 101), GemmShape(1201, 803, 1101),
        GemmShape(1000, 1000, 1000, padding=7), GemmShape(6627, 83, 1085, "TN"),
        GemmShape(5003, 3001, 701, "NT"),
        # Aligned, to separate the cost of the layout from that of the alignment.
        GemmShape(1024, 1024, 1024, "NT"), GemmShape(1024, 1024, 1024, "TT"),
    ),
    "spread": _spread(),
    # Small squares, in batches that fill a device.
    "batched": tuple(GemmShape(size, size, size, batch=10_000) for size in (8, 16, 32, 64)),
}  # fmt: skip


#: What `parse_products` reads, in words.
SHAPES_HELP = (
    f"suites ({', '.join(SUITES)}), files, and shapes MxNxK[:NT][+7][*100], separated by commas. "
    ":NT says which operands are stored transposed, +7 puts 7 elements between rows, *100 makes a "
    "batch of 100 products."
)


def parse_products(text: str) -> list[GemmShape]:
    """Parse names of `SUITES`, shapes (`GemmShape.parse`) and files, separated by commas.

    A file has names and shapes separated by white space or commas, and comments after ``#``. A
    repeated shape counts once.
    """
    shapes: dict[GemmShape, None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        named = _named(item)
        if not named and not names_file(item):
            raise ArgumentError(
                f"shapes has {shown(item)}, which is no suite ({', '.join(SUITES)}), no file, and "
                f"not of the form {WANTED}"
            )
        shapes.update(dict.fromkeys(named or _from_file(Path(item))))
    if not shapes:
        raise ArgumentError(
            f"shapes is {shown(text)}; suites ({', '.join(SUITES)}), shapes such as 64x3072x768, "
            "or files of them are wanted, separated by commas"
        )
    return list(shapes)


def _named(item: str) -> tuple[GemmShape, ...]:
    shape = GemmShape.parse(item)
    return SUITES.get(item, ()) if shape is None else (shape,)


def _from_file(path: Path) -> list[GemmShape]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ArgumentError(f"shapes file {str(path)!r} is larger than a list of shapes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"shapes file {str(path)!r} cannot be read: {error}") from error
    shapes: list[GemmShape] = []
    for number, line in enumerate(text.splitlines(), 1):
        for item in line.split("#", 1)[0].replace(",", " ").split():
            if not (named := _named(item)):
                raise ArgumentError(
                    f"shapes file {str(path)!r}, line {number}, has {shown(item)}; wanted "
                    f"{WANTED}, or one of {', '.join(SUITES)}"
                )
            shapes += named
    return shapes
