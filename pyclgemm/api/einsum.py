"""`einsum` and `tensordot`: sums of products over labelled dimensions, as NumPy writes them.

They read subscripts and axes; `contraction` computes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Sequence
from numbers import Integral
from typing import Any, overload

import numpy as np
import pyopencl as cl

from ..errors import ArgumentError, ShapeError, shown, wrong_type
from ..problem.matrix import check_dtype
from ..runtime.arguments import ArrayT, Operand
from .contraction import Term, as_plain, contract, sizes_of
from .signatures import PrecisionArgument

#: Of an operand of `einsum`, in messages.
_NAME = "operands[{}]"


@overload
def einsum(
    subscripts: str, /, *operands: ArrayT,
    queue: cl.CommandQueue | None = None, out: ArrayT | None = None,
    precision: PrecisionArgument = None, wait_for: Sequence[cl.Event] | None = None,
    optimize: Any = "auto",
) -> ArrayT: ...  # fmt: skip
@overload
def einsum(
    subscripts: Any, /, *operands: Any,
    queue: cl.CommandQueue | None = None, out: Operand | None = None,
    precision: PrecisionArgument = None, wait_for: Sequence[cl.Event] | None = None,
    optimize: Any = "auto",
) -> Any: ...  # fmt: skip
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    precision: PrecisionArgument = None,
    wait_for: Sequence[cl.Event] | None = None,
    optimize: Any = "auto",
) -> Any:
    """Sum products of arrays over labelled dimensions, as `numpy.einsum` does.

    opt_einsum finds the order, and each pair of arrays is multiplied as by `matmul`. Intermediate
    results stay on the device, in the type of `matmul`'s results.

    Parameters
    ----------
    subscripts : str
        Such as "bij,bjk->bik", with ellipses and implicit results as in NumPy. The form
        ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` is taken too.
    *operands : pyopencl.array.Array, numpy.ndarray or NumPy scalar
        Arrays of one element type, of any shape and strides.
    queue : pyopencl.CommandQueue, optional
        None takes the queue of a device array, else that of `default_queue`.
    out : pyopencl.array.Array or numpy.ndarray, optional
        Destination, whose element type is the result's, as for `gemm`. Without it the result has
        the operands' type, but int32 for int8.
    precision : str or jax.lax.DotAlgorithmPreset, optional
        As for `gemm`. Sums over one operand are as exact as the element type.
    wait_for : sequence of pyopencl.Event, optional
        As for `gemm`.
    optimize : str, bool or sequence, optional
        As for `opt_einsum.contract`: how to find the order, or the path itself. False goes from
        left to right.

    Returns
    -------
    pyopencl.array.Array, numpy.ndarray or NumPy scalar
        `out`; without one a new array, on the host if all operands are.

    Raises
    ------
    ArgumentError, ShapeError, DtypeError
        If subscripts and operands do not fit together.
    UnsupportedError
        If the device lacks the arithmetic, or an int8 expression has more than one product or sum,
        as the first has a result of int32.

    See Also
    --------
    tensordot : Sums over axes of two arrays.
    matmul : Computes each pair.
    numpy.einsum : The expressions.
    opt_einsum.contract : Takes ``backend="pyclgemm"``.

    Examples
    --------
    >>> import numpy as np
    >>> a, x = np.ones((2, 3, 4), np.float32), np.arange(4, dtype=np.float32)
    >>> einsum("bij,j->bi", a, x, queue=queue)
    array([[6., 6., 6.],
           [6., 6., 6.]], dtype=float32)
    >>> einsum("ij,kj,k->i", a[0], a[1], x[:3], queue=queue)
    array([12., 12., 12.], dtype=float32)
    """
    text, given = _text_and_operands(subscripts, operands)
    names = [_NAME.format(index) for index in range(len(given))]
    arrays = [_as_operand(name, one) for name, one in zip(names, given, strict=True)]
    shapes = tuple(tuple(array.shape) for array in arrays)
    inputs, output, path = _planned(text, shapes, _as_optimizer(optimize))
    terms = [Term(*term) for term in zip(names, inputs, arrays, strict=True)]
    result = contract(terms, output, path, queue, out, precision, wait_for)
    return result[()] if out is None and isinstance(result, np.ndarray) else result


@overload
def tensordot(
    a: ArrayT, b: ArrayT, /, axes: Any = 2, *,
    queue: cl.CommandQueue | None = None, out: ArrayT | None = None,
    precision: PrecisionArgument = None, wait_for: Sequence[cl.Event] | None = None,
) -> ArrayT: ...  # fmt: skip
@overload
def tensordot(
    a: Operand, b: Operand, /, axes: Any = 2, *,
    queue: cl.CommandQueue | None = None, out: Operand | None = None,
    precision: PrecisionArgument = None, wait_for: Sequence[cl.Event] | None = None,
) -> Any: ...  # fmt: skip
def tensordot(
    a: Any,
    b: Any,
    /,
    axes: Any = 2,
    *,
    queue: cl.CommandQueue | None = None,
    out: Any = None,
    precision: PrecisionArgument = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """Sum products over axes of two arrays, as `numpy.tensordot` does. Errors are `einsum`'s.

    Parameters
    ----------
    a, b : pyopencl.array.Array, numpy.ndarray or NumPy scalar
        Arrays of one element type, of any shape and strides.
    axes : int or pair
        How many of the last axes of `a` and of the first of `b` are summed over, or which of `a`
        and which of `b`, an integer or a sequence each. With 0 it is the outer product.
    queue, out, precision, wait_for
        As for `einsum`.

    Returns
    -------
    pyopencl.array.Array or numpy.ndarray
        `out`; without one a new array: the other axes of `a`, then those of `b`.

    See Also
    --------
    einsum : The same by labels, for any number of arrays.
    numpy.tensordot : The rules for axes.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.ones((2, 3, 4), np.float32)
    >>> tensordot(a, a, axes=([1, 2], [1, 2]), queue=queue)
    array([[12., 12.],
           [12., 12.]], dtype=float32)
    """
    a, b = _as_operand("a", a), _as_operand("b", b)
    left, right = axes_of(axes, a.shape, b.shape)
    # Any distinct characters are labels.
    first = [chr(256 + axis) for axis in range(len(a.shape))]
    second = [chr(512 + axis) for axis in range(len(b.shape))]
    for axis, other in zip(left, right, strict=True):
        second[other] = first[axis]
    output = "".join(label for label in first + second if (label in first) != (label in second))
    terms = [Term("a", "".join(first), a), Term("b", "".join(second), b)]
    return contract(terms, output, ((0, 1),), queue, out, precision, wait_for)


def _text_and_operands(subscripts: Any, operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The subscripts as a text, and the operands, which may stand in turn with lists of labels."""
    if isinstance(subscripts, str):
        return subscripts, operands
    from opt_einsum.parser import convert_interleaved_input

    try:
        text, arrays = convert_interleaved_input((subscripts, *operands))
    except (TypeError, ValueError, LookupError) as error:
        raise ArgumentError(
            f"subscripts are of type {type(subscripts).__name__}; a text, or arrays and lists of "
            f"labels in turn, are wanted: {error}"
        ) from error
    return text, arrays


def _as_operand(name: str, value: Any) -> Any:
    """Return an array as it is, and a NumPy scalar as an array; raise `DtypeError` for others."""
    array = as_plain(name, np.asarray(value) if isinstance(value, np.generic) else value)
    check_dtype(name, array.dtype)
    return array


def _as_optimizer(optimize: Any) -> Any:
    """A path as tuples, which can be kept; others as they are."""
    wanted = "a name, a bool, or a path of operands' indices"
    if isinstance(optimize, (list, tuple)):
        try:
            return tuple(tuple(map(operator.index, step)) for step in optimize)
        except TypeError:
            raise ArgumentError(f"optimize is {shown(optimize)}; {wanted} is wanted") from None
    if not isinstance(optimize, Hashable):
        raise wrong_type("optimize", optimize, wanted)
    return optimize


@functools.lru_cache(maxsize=256, typed=True)
def _planned(
    subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: Any
) -> tuple[list[str], str, list[tuple[int, ...]]]:
    """The labels of the operands and of the result, and the operands of each step."""
    from opt_einsum import contract_path
    from opt_einsum.parser import parse_einsum_input
    from opt_einsum.paths import get_path_fn

    try:
        text, output, _ = parse_einsum_input((subscripts, *shapes), shapes=True)
    except (TypeError, ValueError, LookupError) as error:
        raise ArgumentError(f"subscripts are {shown(subscripts)}: {error}") from error
    inputs = text.split(",")
    sizes_of(zip(map(_NAME.format, range(len(shapes))), inputs, shapes, strict=True))
    try:
        if isinstance(optimize, str):
            get_path_fn(optimize)  # refuses other names, which `contract_path` does for many alone
        path, _ = contract_path(f"{text}->{output}", *shapes, shapes=True, optimize=optimize)
        if sum(len(step) - 1 for step in path) != len(inputs) - 1:
            raise ValueError(f"a path for {len(inputs)} operands is wanted")
    except (TypeError, ValueError, LookupError) as error:
        raise ArgumentError(f"optimize is {shown(optimize)}: {error}") from error
    return inputs, output, path


def axes_of(axes: Any, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The axes of a and of b to sum over, from 0; raise `ArgumentError` unless they fit."""
    try:
        if isinstance(axes, Integral):
            if axes < 0:
                raise ValueError
            axes = range(-axes, 0), range(axes)
        # A range of all axes takes negative ones, and nothing but integers.
        left, right = (
            [range(len(shape))[axis] for axis in (one if isinstance(one, Iterable) else [one])]
            for one, shape in zip(axes, (a, b), strict=True)
        )
        if not len(left) == len(set(left)) == len(right) == len(set(right)):
            raise ValueError
    except (TypeError, ValueError, IndexError):
        raise ArgumentError(
            f"axes is {shown(axes)}; a is {a} and b is {b}: a number of axes, or as many distinct "
            "axes of a as of b, are wanted"
        ) from None
    if [a[axis] for axis in left] != [b[axis] for axis in right]:
        raise ShapeError(
            f"axes is {shown(axes)}; a is {a} and b is {b}: axes that are summed over must have "
            "equal extents"
        )
    return left, right
