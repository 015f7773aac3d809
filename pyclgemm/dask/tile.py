"""The tasks: what one of them computes from its blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..api.batched import gemm_batched
from ..api.dense import DenseLayer
from ..api.epilogue import Epilogue
from ..api.gemm import gemm
from ..api.signatures import PrecisionArgument
from ..errors import ShapeError, wrong_type
from ..problem.matrix import check_dtype, result_dtype
from ..problem.precision import is_complex, resolve_precision
from ..problem.problem import ActivationName
from .current import here
from .device_blocks import DeviceBlocks


@dataclass(frozen=True)
class Contraction:
    """Which dimensions of two operands are multiplied, summed over, and in which order they stay.

    A label stands for a dimension. Each of `a` is in `b`, in `out` or in both, and so on.
    """

    a: str
    b: str
    out: str

    @property
    def batch(self) -> str:
        """Labels of all three."""
        return "".join(one for one in self.out if one in self.a and one in self.b)

    @property
    def summed(self) -> str:
        """Labels of both operands that the result lacks."""
        return "".join(one for one in self.a if one in self.b and one not in self.out)

    @property
    def rows(self) -> str:
        """Labels of `a` and the result alone."""
        return "".join(one for one in self.out if one not in self.b)

    @property
    def columns(self) -> str:
        """Labels of `b` and the result alone."""
        return "".join(one for one in self.out if one not in self.a)

    def left(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A block of `a` as (batch, m, k)."""
        return _grouped(block, self.a, (self.batch, self.rows, self.summed))

    def right(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A block of `b` as (batch, k, n)."""
        return _grouped(block, self.b, (self.batch, self.summed, self.columns))

    def result(self, product: np.ndarray[Any, Any], sizes: dict[str, int]) -> np.ndarray[Any, Any]:
        """The tile of the result from (batch, m, n)."""
        order = self.batch + self.rows + self.columns
        product = product.reshape([sizes[one] for one in order])
        return product.transpose([order.index(one) for one in self.out])


def _grouped(
    block: np.ndarray[Any, Any], labels: str, groups: Sequence[str]
) -> np.ndarray[Any, Any]:
    """The block with the dimensions of each group made one; it is copied if they lie apart."""
    view = block.transpose([labels.index(one) for one in "".join(groups)])
    sizes = dict(zip(labels, block.shape, strict=True))
    return view.reshape([math.prod(sizes[one] for one in group) for group in groups])


@dataclass(frozen=True)
class Tile:
    """The task of a tile: the sum of the products of its blocks along k.

    The sum is in the type in which products are accumulated, always in the order of k, and is
    rounded once. So the result depends neither on the worker nor on who came first.
    """

    contraction: Contraction
    precision: PrecisionArgument = None
    grid: tuple[int, int] | str | None = None  # for `placement`

    def __call__(self, a: Any, b: Any) -> np.ndarray[Any, Any]:
        """Multiply nested lists of blocks, one level for each dimension that is summed over."""
        one = self.contraction
        left = list(_blocks(a, one.a, one.summed))
        right = list(_blocks(b, one.b, one.summed))
        dtype = left[0].dtype.name
        sums = resolve_precision(self.precision, dtype).arithmetic
        sums = dtype if is_complex(dtype) else sums
        sizes = dict(zip(one.a, left[0].shape, strict=True))
        sizes |= dict(zip(one.b, right[0].shape, strict=True))
        with here() as device:
            with device.turn:
                pairs = zip(map(one.left, left), map(one.right, right), strict=True)
                operands = device.uploads(matrix for pair in pairs for matrix in pair)
                out = None
                for x, y in zip(operands, operands, strict=True):
                    out = self._multiply(device, x, y, out, np.dtype(sums))
                end = device.enqueued()
            product = device.download(out, end)
            device.keep(out)
        return one.result(product, sizes).astype(result_dtype(dtype), copy=False)

    def _multiply(
        self, device: DeviceBlocks, x: Any, y: Any, out: Any, dtype: np.dtype[Any]
    ) -> Any:
        """Add a product to `out`, which is made if it is None."""
        queue = device.queue
        addend = {} if out is None else {"c": out, "beta": 1.0}
        if out is None:
            out = device.result((x.shape[0], x.shape[1], y.shape[2]), dtype)
        if x.shape[0] == 1:
            if addend:
                addend["c"] = out[0]
            gemm(queue, x[0], y[0], out=out[0], precision=self.precision, **addend)
        else:
            gemm_batched(queue, x, y, out=out, precision=self.precision, **addend)
        return out


def _blocks(nested: Any, labels: str, summed: str) -> Iterator[np.ndarray[Any, Any]]:
    """The blocks of an operand in the order of `summed`; Dask nests them in that of `labels`."""
    own = [one for one in labels if one in summed]
    counts, node = {}, nested
    for one in own:
        counts[one] = len(node)
        node = node[0]
    for numbers in np.ndindex(*(counts[one] for one in summed)):
        index = dict(zip(summed, numbers, strict=True))
        block = nested
        for one in own:
            block = block[index[one]]
        yield block


@dataclass(frozen=True, eq=False)
class Layer:
    """The numbers of a dense layer, for `dense`: ``activation(x @ weight + bias)``.

    A `pyclgemm.DenseLayer` lives on one device. Each worker makes its own of this one, once.

    Parameters
    ----------
    weight : numpy.ndarray
        Shape (in, out).
    bias : numpy.ndarray, optional
        Shape (out,).
    activation, precision : str, optional
        As for `pyclgemm.DenseLayer`.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If weight, bias, activation and precision do not fit together.

    See Also
    --------
    dense : Applies it, with an example.
    """

    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any] | None = None
    activation: ActivationName | None = None
    precision: PrecisionArgument = None

    def __post_init__(self) -> None:
        for name, array, ndim in (("weight", self.weight, 2), ("bias", self.bias, 1)):
            if array is None and name == "bias":
                continue
            if type(array) is not np.ndarray:
                raise wrong_type(name, array, "a numpy.ndarray")
            check_dtype(name, array.dtype)
            if array.ndim != ndim or (ndim == 1 and array.shape != self.weight.shape[1:]):
                raise ShapeError(
                    f"{name} is {array.shape}; a weight (in, out) and a bias (out,) are wanted"
                )
        Epilogue(None, self.activation)
        resolve_precision(self.precision, self.weight.dtype.name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the result."""
        return np.dtype(result_dtype(self.weight.dtype.name, "weight", bias=self.bias))

    def __call__(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Apply the layer to rows on the device of this worker."""
        with here() as device:
            with device.turn:
                ready = device.layers.get(self)
                if ready is None:
                    ready = DenseLayer(
                        device.queue, self.weight, self.bias, self.activation,
                        precision=self.precision,
                    )  # fmt: skip
                    device.layers[self] = ready
                out = ready(device.upload(x))
                end = device.enqueued()
            return device.download(out, end)


def apply_layer(x: np.ndarray[Any, Any], layer: Layer) -> np.ndarray[Any, Any]:
    """The task of `dense`: a layer applied to a chunk of rows."""
    return layer(x)
