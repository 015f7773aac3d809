"""The functions of Dask arrays: they check the operands, align their chunks, and name the tasks."""

from __future__ import annotations

import math
import operator
import weakref
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import opt_einsum

from ..api.einsum import axes_of
from ..api.signatures import PrecisionArgument
from ..errors import ArgumentError, DtypeError, ShapeError, UnsupportedError, shown, wrong_type
from ..problem.matrix import check_dtype, result_dtype
from ..problem.precision import resolve_precision
from .placement import Placement
from .tile import Contraction, Layer, Tile, apply_layer


def matmul(a: Any, b: Any, *, precision: PrecisionArgument = None, grid: Any = "auto") -> da.Array:
    """Multiply Dask arrays as `numpy.matmul` does, with one task for each tile of the result.

    A task multiplies the blocks of a row of `a` with those of a column of `b` on its worker's
    device. It sums them there in the type in which products are accumulated, in the order of k, and
    rounds once.

    Parameters
    ----------
    a, b : dask.array.Array or numpy.ndarray
        Vectors, matrices and stacks, at least one of them a Dask array, of one element type that
        `pyclgemm.gemm` takes. Their chunks are NumPy arrays of known sizes. Where the chunks along
        k differ, the smaller operand is rechunked.
    precision : str or jax.lax.DotAlgorithmPreset, optional
        As for `pyclgemm.gemm`.
    grid : "auto", pair of int or None
        The rows and columns of workers that share the product, (pr, pc): row r computes every
        pr-th row of tiles, and so for columns. "auto" chooses, as the product is submitted, the
        grid that moves the fewest bytes of those that divide the tiles best. None leaves it to
        Dask which of the workers with a device computes a tile. Only distributed clusters have
        workers to choose from. Unless their workers have the plugin `Devices`, the client must have
        been made before this call, and not be asynchronous.

    Returns
    -------
    dask.array.Array
        Its chunks are those of the rows of `a` and the columns of `b`.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If the arguments do not fit together, or chunks have unknown sizes. When a product is
        computed, a worker without a device that works raises `UnsupportedError`.

    See Also
    --------
    pyclgemm.matmul : Products that one device holds.
    einsum : Any labelled dimensions.
    local_cluster : Workers with a device each.
    dask.array.matmul : The same by NumPy, with a task for each pair of blocks.

    Examples
    --------
    >>> import dask.array as da, pyclgemm.dask
    >>> a = da.ones((4, 6), chunks=(2, 3), dtype="float32")
    >>> c = pyclgemm.dask.matmul(a, a.T)
    >>> c.chunks, len(c.dask.layers[c.name])
    (((2, 2), (2, 2)), 4)
    >>> c.compute(scheduler="synchronous")[0]
    array([6., 6., 6., 6.], dtype=float32)
    """
    _check_operands(a, b)
    for name, array in (("a", a), ("b", b)):
        if not array.ndim:
            raise ShapeError(f"{name} is a scalar; matmul takes vectors and matrices")
    if a.shape[-1] != b.shape[-2:][0]:
        raise ShapeError(
            f"a is {a.shape} and b is {b.shape}: a's columns ({a.shape[-1]}) must equal b's rows "
            f"({b.shape[-2:][0]})"
        )
    try:
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"a is {a.shape} and b is {b.shape}: the leading dimensions {a.shape[:-2]} and "
            f"{b.shape[:-2]} do not broadcast"
        ) from None
    rows, columns = "i"[: a.ndim - 1], "j"[: b.ndim - 1]
    leading = "".join(map(opt_einsum.get_symbol, range(26, 26 + len(stack))))  # capitals first
    a, of_a = _without_repeats(a, stack, leading)
    b, of_b = _without_repeats(b, stack, leading)
    one = Contraction(f"{of_a}{rows}k", f"{of_b}k{columns}", f"{leading}{rows}{columns}")
    return _contracted(a, b, one, precision, grid)


def _without_repeats(array: Any, stack: tuple[int, ...], labels: str) -> tuple[Any, str]:
    """The array without the leading dimensions along which it is repeated; labels of the others."""
    own = array.shape[:-2]
    labels, stack = labels[len(stack) - len(own) :], stack[len(stack) - len(own) :]
    repeated = [have != wanted for have, wanted in zip(own, stack, strict=True)]
    kept = (label for label, is_repeated in zip(labels, repeated, strict=True) if not is_repeated)
    index = tuple(0 if is_repeated else slice(None) for is_repeated in repeated)
    return (array[index] if any(repeated) else array), "".join(kept)


def tensordot(
    a: Any, b: Any, axes: Any = 2, *, precision: PrecisionArgument = None, grid: Any = "auto"
) -> da.Array:
    """Sum products over axes of two arrays, as `numpy.tensordot` does, with a task for each tile.

    Parameters
    ----------
    a, b, precision, grid
        As for `matmul`.
    axes : int or pair
        As for `pyclgemm.tensordot`.

    Returns
    -------
    dask.array.Array
        The other axes of `a`, then those of `b`.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        As for `matmul`, or if `axes` do not fit the shapes.

    See Also
    --------
    einsum : The same by labels.
    pyclgemm.tensordot : Products that one device holds.
    dask.array.tensordot : The same by NumPy.

    Examples
    --------
    >>> import dask.array as da, pyclgemm.dask
    >>> a = da.ones((2, 3, 4), chunks=2, dtype="float32")
    >>> pyclgemm.dask.tensordot(a, a, axes=([1, 2], [1, 2])).compute(scheduler="synchronous")
    array([[12., 12.],
           [12., 12.]], dtype=float32)
    """
    _check_operands(a, b)
    of_a, of_b = axes_of(axes, a.shape, b.shape)
    labels_a = [opt_einsum.get_symbol(number) for number in range(a.ndim)]
    labels_b = [opt_einsum.get_symbol(a.ndim + number) for number in range(b.ndim)]
    for left, right in zip(of_a, of_b, strict=True):
        labels_b[right] = labels_a[left]
    out = [one for one in labels_a + labels_b if not (one in labels_a and one in labels_b)]
    one = Contraction("".join(labels_a), "".join(labels_b), "".join(out))
    return _contracted(a, b, one, precision, grid)


def einsum(
    subscripts: str, a: Any, b: Any, *, precision: PrecisionArgument = None, grid: Any = "auto"
) -> da.Array:
    """Sum products of two arrays over labelled dimensions, with one task for each tile.

    Parameters
    ----------
    subscripts : str
        Such as "bij,bjk->bik", as for `numpy.einsum`. A label stands once in an operand, and one
        that the result lacks stands in both.
    a, b, precision, grid
        As for `matmul`.

    Returns
    -------
    dask.array.Array
        Its dimensions are those on the right of the arrow.

    Raises
    ------
    UnsupportedError
        If the expression takes a diagonal or sums over one operand alone. Other errors are those
        of `matmul`.

    See Also
    --------
    tensordot : The same by axes.
    pyclgemm.einsum : Any number of arrays, on one device.
    dask.array.einsum : The same by NumPy.

    Examples
    --------
    >>> import dask.array as da, pyclgemm.dask
    >>> a = da.ones((4, 6), chunks=3, dtype="float32")
    >>> pyclgemm.dask.einsum("ki,kj->ij", a, a).shape
    (6, 6)
    """
    if not isinstance(subscripts, str):
        raise wrong_type("subscripts", subscripts, 'a text such as "ij,jk->ik"')
    _check_operands(a, b)
    try:
        inputs, out, _ = opt_einsum.parser.parse_einsum_input(
            (subscripts, a.shape, b.shape), shapes=True
        )
        of_a, of_b = inputs.split(",")
    except (ValueError, IndexError, KeyError) as error:
        raise ArgumentError(f"subscripts is {shown(subscripts)} for two arrays: {error}") from None
    for name, labels, others in (("a", of_a, of_b), ("b", of_b, of_a)):
        if len(set(labels)) < len(labels):
            raise UnsupportedError(
                f"subscripts is {shown(subscripts)}, which takes a diagonal of {name}; take it "
                "with dask.array.diagonal first"
            )
        if alone := set(labels) - set(others) - set(out):
            raise UnsupportedError(
                f"subscripts is {shown(subscripts)}, which sums {name} alone over "
                f"{', '.join(sorted(alone))}; sum it first"
            )
    return _contracted(a, b, Contraction(of_a, of_b, out), precision, grid)


def dense(x: Any, layer: Layer) -> da.Array:
    """Apply a dense layer to rows, with one task for each chunk of them.

    Each worker packs the weight once.

    Parameters
    ----------
    x : dask.array.Array
        Shape (rows, in); chunks that divide the columns are joined.
    layer : Layer
        The numbers of the layer.

    Returns
    -------
    dask.array.Array
        Shape (rows, out).

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If `x` is no two-dimensional Dask array of the layer's element type and width, or has
        chunks of unknown sizes.

    See Also
    --------
    Layer : The numbers of a layer.
    pyclgemm.DenseLayer : A layer on one device.

    Examples
    --------
    >>> import dask.array as da, numpy as np, pyclgemm.dask
    >>> layer = pyclgemm.dask.Layer(np.eye(3, dtype="float32"), activation="relu")
    >>> x = da.ones((4, 3), chunks=2, dtype="float32")
    >>> pyclgemm.dask.dense(x, layer).sum().compute()
    np.float32(12.0)
    """
    if not isinstance(layer, Layer):
        raise wrong_type("layer", layer, "a pyclgemm.dask.Layer, which any worker can use,")
    if not isinstance(x, da.Array):
        raise wrong_type("x", x, "a dask.array.Array")
    _check_array("x", x)
    if x.ndim != 2 or x.shape[1] != layer.weight.shape[0]:
        raise ShapeError(f"x is {x.shape}; (rows, {layer.weight.shape[0]}) is wanted")
    if x.dtype != layer.weight.dtype:
        raise DtypeError(f"x is {x.dtype} and the weight {layer.weight.dtype}; one type is wanted")
    if x.numblocks[1] > 1:
        x = x.rechunk({1: -1})
    _register_placement()
    outputs = layer.weight.shape[1]
    return da.blockwise(
        apply_layer, "ij", x, "ik", layer=dask.delayed(layer), concatenate=True,
        new_axes={"j": outputs}, dtype=layer.dtype, meta=np.empty((0, 0), layer.dtype),
        token="pyclgemm-dense",
    )  # fmt: skip


def _check_operands(a: Any, b: Any) -> None:
    """Raise unless two arrays can be multiplied, as far as their types tell."""
    for name, array in (("a", a), ("b", b)):
        _check_array(name, array)
    if not isinstance(a, da.Array) and not isinstance(b, da.Array):
        raise DtypeError(
            "a and b are NumPy arrays; at least one dask.array.Array is wanted, and "
            "pyclgemm.matmul takes NumPy arrays"
        )
    if a.dtype != b.dtype:
        raise DtypeError(f"b is {b.dtype} and a is {a.dtype}; they must be the same")


def _check_array(name: str, array: Any) -> None:
    """Raise unless an array has an element type to multiply, NumPy's chunks and known sizes."""
    wanted = "a dask.array.Array or a numpy.ndarray"
    if not isinstance(array, da.Array):
        if type(array) not in (np.ndarray, np.memmap):
            raise wrong_type(name, array, wanted)
    elif type(array._meta) is not np.ndarray:
        raise DtypeError(
            f"{name} has chunks of {type(array._meta).__name__}; chunks of numpy.ndarray are wanted"
        )
    check_dtype(name, array.dtype)
    unknown = [axis for axis, extent in enumerate(array.shape) if math.isnan(extent)]
    if unknown:
        raise ShapeError(
            f"{name} has chunks of unknown sizes along axis {unknown[0]}, so tiles and grid cannot "
            f"be planned; {name}.compute_chunk_sizes() finds them"
        )


def _contracted(
    a: Any, b: Any, one: Contraction, precision: PrecisionArgument, grid: Any
) -> da.Array:
    """The result of a contraction, after all checks."""
    algorithm = resolve_precision(precision, a.dtype.name)
    tile = Tile(one, None if precision is None else algorithm.name, _checked_grid(grid))
    sizes = dict(zip(one.a, a.shape, strict=True))
    for label, size in zip(one.b, b.shape, strict=True):
        if sizes.get(label, size) != size:
            raise ShapeError(
                f"a is {a.shape} and b is {b.shape}: {label!r} is {sizes[label]} in a ({one.a}) "
                f"and {size} in b ({one.b})"
            )
    a, b = _aligned(a, one.a, b, one.b)
    _register_placement()
    dtype = np.dtype(result_dtype(a.dtype.name))
    return da.blockwise(
        tile, tuple(one.out), a, tuple(one.a), b, tuple(one.b), concatenate=False,
        align_arrays=False, dtype=dtype, meta=np.empty((0,) * len(one.out), dtype),
        token="pyclgemm-tile",
    )  # fmt: skip


def _checked_grid(grid: Any) -> tuple[int, int] | str | None:
    """The argument `grid`, or an error."""
    if grid is None or (isinstance(grid, str) and grid == "auto"):
        return grid
    try:
        pair = tuple(map(operator.index, grid))
    except TypeError:
        pair = ()
    if len(pair) != 2 or min(pair) < 1 or isinstance(grid, (str, bytes)):
        raise ArgumentError(
            f'grid is {shown(grid)}; "auto", None or two positive integers (pr, pc) are wanted'
        )
    return pair[0], pair[1]


def _aligned(a: Any, of_a: str, b: Any, of_b: str) -> tuple[da.Array, da.Array]:
    """Both operands as Dask arrays with the same chunks along the labels that they share."""
    arrays, labels = [a, b], [of_a, of_b]
    for number, array in enumerate(arrays):
        if not isinstance(array, da.Array):
            other = dict(zip(labels[1 - number], arrays[1 - number].chunks, strict=True))
            chunks = tuple(other.get(label, "auto") for label in labels[number])
            arrays[number] = da.from_array(array, chunks=chunks)
    smaller = min((0, 1), key=lambda number: arrays[number].nbytes)
    wanted = dict(zip(labels[1 - smaller], arrays[1 - smaller].chunks, strict=True))
    changed = {
        axis: wanted[label]
        for axis, label in enumerate(labels[smaller])
        if wanted.get(label, arrays[smaller].chunks[axis]) != arrays[smaller].chunks[axis]
    }
    if changed:
        arrays[smaller] = arrays[smaller].rechunk(changed)
    return arrays[0], arrays[1]


def _register_placement() -> None:
    """Have the current client's scheduler place products, if there is a client that can wait."""
    try:
        client = distributed.Client.current()
    except ValueError:
        return
    if client not in _clients and not client.asynchronous:
        client.register_plugin(Placement())
        _clients.add(client)


#: Clients whose schedulers place products.
_clients: weakref.WeakSet[distributed.Client] = weakref.WeakSet()
