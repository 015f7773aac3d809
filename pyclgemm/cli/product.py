"""The commands ``source`` and ``explain``, and the options that describe a product."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import click
from rich.syntax import Syntax

from ..analysis.report import describe_packing, describe_unit
from ..device.discovery import choose_device
from ..device.traits import DeviceTraits, typical_traits
from ..errors import shown
from ..families.registry import FAMILIES
from ..problem.precision import result_dtypes
from ..problem.problem import ACTIVATIONS
from ..problem.product import Product
from ..problem.shape import GemmShape, Layout
from ..selection.database import load_database
from ..selection.overrides import choose, kernel_sources, parse_assignment
from ..selection.select import Choice
from .console import device_option, dtype_option, open_console, parsed, precision_option


def parse_shape(text: str) -> tuple[int, int, int]:
    """Parse m, n and k in the form MxNxK."""
    shape = GemmShape.parse(text)
    if shape is None or not shape.plain:
        raise click.BadParameter(f"{shown(text)} is not of the form MxNxK, such as 1024x1024x512")
    return shape.sizes


def parse_batch(text: str) -> GemmShape:
    """Parse a product in the form MxNxK, or a batch of products, MxNxK*BATCH."""
    shape = GemmShape.parse(text)
    if shape is None or shape.layout != "NN" or shape.padding:
        raise click.BadParameter(
            f"{shown(text)} is not of the form MxNxK or MxNxK*BATCH, such as 1024x1024x512 or "
            "128x128x128*256 (2 products or more)"
        )
    return shape


def parse_single(text: str) -> GemmShape:
    """Parse a product in the form MxNxK."""
    return GemmShape(*parse_shape(text))


def parse_parameter(text: str) -> tuple[str, int]:
    """Parse a configuration's parameter in the form NAME=VALUE."""
    return parsed(parse_assignment, text)


parameters_option = click.option(
    "--config",
    "parameters",
    metavar="NAME=VALUE",
    type=parse_parameter,
    multiple=True,
    help="Replace a parameter of the configuration; may be given several times.",
)

_OPTIONS = (
    dtype_option,
    click.option("--trans-a", is_flag=True, help="A is stored (k, m)."),
    click.option("--trans-b", is_flag=True, help="B is stored (n, k)."),
    click.option("--conjugate-a", is_flag=True, help="Conjugate transpose of A, stored (k, m)."),
    click.option("--conjugate-b", is_flag=True, help="Conjugate transpose of B, stored (n, k)."),
    click.option("--with-c", is_flag=True, help="Add beta C."),
    click.option("--bias", is_flag=True, help="Add a bias of n entries to every row."),
    click.option("--activation", type=click.Choice(tuple(ACTIVATIONS))),
    precision_option,
    click.option(
        "--result-dtype",
        help="Element type of result, C and bias, where operands have a choice: float16 and "
        "bfloat16 also give float32.",
    ),
    click.option(
        "--path",
        type=click.Choice(("auto", *FAMILIES)),
        default="auto",
        show_default=True,
        help="The kernel family.",
    ),
    parameters_option,
    device_option,
)


def product_options(command: Callable[..., None], *, batches: bool = False) -> Callable[..., None]:
    """Give a command the options that describe a product and how it is computed.

    It is called with the `Product`, the path that was asked for or None, a dict of parameters, and
    by name with ``device`` and its own options. With `batches` it takes batches of products, too.
    """
    metavar, parse = ("MxNxK[*BATCH]", parse_batch) if batches else ("MxNxK", parse_single)
    argument = click.argument("shape", metavar=metavar, type=parse)

    @functools.wraps(command)
    def wrapped(
        shape: GemmShape,
        dtype: str,
        trans_a: bool,
        trans_b: bool,
        conjugate_a: bool,
        conjugate_b: bool,
        with_c: bool,
        bias: bool,
        activation: str | None,
        precision: str | None,
        result_dtype: str | None,
        path: str,
        parameters: tuple[tuple[str, int], ...],
        **others: Any,
    ) -> None:
        allowed = result_dtypes(dtype)
        if result_dtype is not None and result_dtype not in allowed:
            raise click.BadParameter(
                f"{result_dtype!r}; the result of {dtype} operands is {' or '.join(allowed)}",
                param_hint="--result-dtype",
            )
        layout = _letter("a", trans_a, conjugate_a) + _letter("b", trans_b, conjugate_b)
        product = replace(shape, layout=cast(Layout, layout)).product(
            dtype,
            precision,
            conjugate="a" * conjugate_a + "b" * conjugate_b,
            reads_c=with_c,
            bias=bias,
            activation=activation,
            result_dtype=result_dtype,
        )
        command(product, None if path == "auto" else path, dict(parameters), **others)

    for option in reversed((argument, *_OPTIONS)):
        wrapped = option(wrapped)
    return wrapped


def _of_product(command: Callable[[Product, Choice, DeviceTraits], None]) -> Callable[..., None]:
    """Give a command the options that describe a product, and call it with the choice for it."""

    @functools.partial(product_options, batches=True)
    @click.option(
        "--architecture",
        metavar="NAME",
        help="A typical device of sm_90, gfx1012, x86-64-v4, ... instead of one that is here.",
    )
    @functools.wraps(command)
    def wrapped(
        product: Product,
        path: str | None,
        parameters: dict[str, int],
        device: str | None,
        architecture: str | None,
    ) -> None:
        if device is not None and architecture is not None:
            raise click.UsageError("--device and --architecture exclude each other")
        traits = typical_traits(architecture) if architecture else choose_device(device).traits
        assert traits is not None
        command(product, choose(product.problem, traits, load_database(), path, parameters), traits)

    return wrapped


def _letter(operand: str, transposed: bool, conjugated: bool) -> str:
    """How an operand is stored, a letter of `GemmShape.layout`."""
    if transposed and conjugated:
        raise click.UsageError(f"--trans-{operand} and --conjugate-{operand} exclude each other")
    return "T" if transposed or conjugated else "N"


_SOURCE_EXAMPLES = """\b
Examples:
  python -m pyclgemm source 1024x1024x1024
  python -m pyclgemm source 64x3072x768 --bias --activation relu
  python -m pyclgemm source 512x512x512 --path indirect --architecture gfx1012 --config KWG=32
"""


@click.command(epilog=_SOURCE_EXAMPLES)
@_of_product
def source(product: Product, choice: Choice, traits: DeviceTraits) -> None:
    """Print the OpenCL C that computes a product.

    It is the product of an (M, K) and a (K, N) matrix, or BATCH of them. All kernels are printed
    in the order of their launches. Colours appear only on a terminal, so the output can be piped
    to a compiler.
    """
    kernels = kernel_sources(product, choice.config, traits)
    text = "\n".join(kernel.text for kernel in kernels)
    if sys.stdout.isatty():
        open_console().print(Syntax(text, "c", background_color="default"))
    else:
        click.echo(text, nl=False)


_EXPLAIN_EXAMPLES = """\b
Examples:
  python -m pyclgemm explain 1024x1024x1024
  python -m pyclgemm explain 64x3072x768 --dtype float16 --architecture sm_90
  python -m pyclgemm explain "128x128x128*256"
"""


@click.command(epilog=_EXPLAIN_EXAMPLES)
@_of_product
def explain(product: Product, choice: Choice, traits: DeviceTraits) -> None:
    """Say which kernels compute a product, and why.

    It is the product of an (M, K) and a (K, N) matrix, or BATCH of them. `unit` is the matrix
    unit that multiplies, or why none does; `packed` says which operands are laid out anew before,
    and why.
    """
    problem = product.problem
    batch = "" if problem.batch is None else f", {problem.batch} products"
    kernels = [kernel.name for kernel in kernel_sources(product, choice.config, traits)]
    lines = {
        "product": f"{problem.m} x {problem.n} x {problem.k}{batch}, {problem.types}, "
        f"{problem.precision.name}",
        "device": f"{traits.name} ({traits.architecture or 'unknown architecture'}), "
        f"{traits.platform} {traits.driver}",
        "path": choice.path,
        "config": str(choice.config),
        "from": f"{choice.source} (level {choice.level})",
        "reason": choice.reason,
        "unit": describe_unit(problem, choice.config, traits),
        "packed": describe_packing(problem, choice.config, kernels),
        "kernels": ", ".join(kernels),
    }
    for name, value in lines.items():
        click.echo(f"{name:8} {value}")
