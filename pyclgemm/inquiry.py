"""Which kernels would run, for sizes and types alone: no arrays, and no device needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .config import Config, config_from_dict
from .constraints import violations
from .cpu_orientation import problem_on
from .database import Database
from .device import DeviceTraits
from .epilogue import Epilogue
from .errors import ArgumentError
from .kernel_source import KernelSource
from .operands import Matrix, Transposition
from .precision import is_complex, resolve_precision
from .problem import GemmProblem
from .product import Product, make_product
from .product_traits import traits_of_problem
from .record_order import groups_of, in_order
from .records import Record
from .schedule import make_schedule, oriented
from .select import Choice, select


@dataclass(frozen=True)
class Inquiry:
    """A product of contiguous row-major matrices, or a batch of them.

    Attributes
    ----------
    m, n, k : int
        Sizes, at least 1.
    dtype : str
        NumPy name of the element type of A and B.
    trans_a, trans_b : "N", "T" or "C"
        A is stored (k, m), and B (n, k), unless it is "N".
    reads_c : bool
        Whether an addend takes part, beta not being zero.
    bias : bool
        Whether a bias is added to every row.
    activation : str or None
        One of `pyclgemm.epilogue.ACTIVATIONS`.
    precision : str or None
        JAX's name of the arithmetic; None for the default of the type.
    result_dtype : str or None
        NumPy name of the element type of C, bias and result; None for the default of `dtype`.
    batch : int or None
        So many products, at least 2, of matrices one behind the other; None for a single one.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    trans_a: Transposition = "N"
    trans_b: Transposition = "N"
    reads_c: bool = False
    bias: bool = False
    activation: str | None = None
    precision: str | None = None
    result_dtype: str | None = None
    batch: int | None = None


def product_of(inquiry: Inquiry) -> Product:
    """Describe the product as the functions that take arrays would.

    Raises
    ------
    ArgumentError, DtypeError, UnsupportedError
        If the activation or the precision is unknown, or does not suit the type.

    Examples
    --------
    >>> product_of(Inquiry(8, 4, 2, trans_a="T")).problem.a.order
    'column'
    >>> product_of(Inquiry(8, 4, 2, batch=100)).b.batch_stride
    8
    """
    m, n, k, batch = inquiry.m, inquiry.n, inquiry.k, inquiry.batch
    has_imaginary = is_complex(inquiry.dtype)
    a = _row_major(m, k, batch) if inquiry.trans_a == "N" else _row_major(k, m, batch)
    b = _row_major(k, n, batch) if inquiry.trans_b == "N" else _row_major(n, k, batch)
    out = _row_major(m, n, batch)
    return make_product(
        a.operated(inquiry.trans_a, is_complex=has_imaginary),
        b.operated(inquiry.trans_b, is_complex=has_imaginary),
        out,
        out if inquiry.reads_c else None,
        dtype=inquiry.dtype,
        precision=resolve_precision(inquiry.precision, inquiry.dtype),
        bias_stride=1 if inquiry.bias else None,
        activation=Epilogue(activation=inquiry.activation).activation,
        result_dtype=inquiry.result_dtype or "",
        batch=batch,
    )


def choose(
    problem: GemmProblem,
    traits: DeviceTraits,
    database: Database,
    path: str | None = None,
    parameters: Mapping[str, int] | None = None,
) -> Choice:
    """Choose as `pyclgemm.gemm` would, or a path and parameters that were asked for.

    Parameters
    ----------
    problem : GemmProblem
        The product.
    traits : DeviceTraits
        The device.
    database : Database
        What is known.
    path : str, optional
        "indirect", "direct" or "cpu", even where it would not be chosen.
    parameters : mapping, optional
        Replace those of the configuration that the database gives.

    Raises
    ------
    ArgumentError
        If `path` is asked for and the database knows no configuration of it.
    ConfigError
        If the resulting configuration is not valid.
    UnsupportedError
        If nothing in the database fits the device.
    """
    if path is None:
        choice = select(problem, traits, database)
        if not parameters:
            return choice
        path, base = choice.path, choice.config
    else:
        base = _nearest(problem, traits, database, path)
    # Rebuilt by name: what a configuration derives from others stays as it was found.
    asked = config_from_dict(path, {**base.as_dict(), **(parameters or {})})
    return select(problem, traits, database, asked)


def kernel_sources(product: Product, config: Config, traits: DeviceTraits) -> list[KernelSource]:
    """The kernels that compute a product, in the order of their launches."""
    schedule = make_schedule(oriented(product, config, traits), config, traits)
    return [launch.source for launch in schedule.launches]


def _row_major(rows: int, columns: int, batch: int | None) -> Matrix:
    batch_stride = rows * columns if batch else 0
    return Matrix(rows, columns, columns, column_stride=1, offset=0, batch_stride=batch_stride)


def _nearest(problem: GemmProblem, traits: DeviceTraits, database: Database, path: str) -> Config:
    problem = problem_on(problem, traits)

    def is_asked_for(record: Record) -> bool:
        return (
            record.config.family == path
            and (record.kind != "batch" or problem.products > 1)
            and not violations(record.config, problem.dtype, traits)
        )

    wanted = traits_of_problem(problem)
    for group in groups_of(database.lookup(traits, problem.dtype, problem.precision.name)):
        for _, record in in_order(group, is_asked_for, wanted, traits.compute_units):
            return record.config
    raise ArgumentError(
        f"path is {path!r}, of which no database has a configuration for {problem.dtype} on "
        f"{traits.name!r}"
    )
