"""`DenseLayer`: a product with a constant weight, a bias and an activation."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..codegen.config import Config
from ..errors import ArgumentError, DtypeError, ShapeError, described, shown
from ..families.registry import family_of
from ..host.process import OfThisProcess
from ..problem.matrix import check_dtype, result_dtype
from ..problem.problem import ActivationName
from ..runtime.arguments import ArrayT, Operand, as_array, check_queue
from ..runtime.arrays import PackedMatrix, as_batch, as_rows
from ..runtime.memory import (
    new_array,
    size_of,
    through_device,
    to_device,
    to_host,
)
from ..selection.select import Choice
from .autotune import SECONDS, TOP, check_limits, is_positive_integer
from .epilogue import Epilogue
from .gemm import run
from .pack import pack
from .plan import GemmPlan, plan
from .prepare import Call
from .signatures import PrecisionArgument

if TYPE_CHECKING:  # else it is imported when it is used: most programs do not need it
    from .storage import StoredLayer


class DenseLayer(OfThisProcess):
    """``activation(x @ weight + bias)``, with the weight packed once.

    Its parts are fixed: other ones need another layer.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the layer runs.
    weight : pyopencl.array.Array or numpy.ndarray
        Shape (in, out), of any element type that `pyclgemm.gemm` multiplies.
    bias : pyopencl.array.Array or numpy.ndarray, optional
        Shape (out,), of the result's element type: that of the weight; also float32 for a weight
        of float16 or bfloat16; int32 for int8.
    activation : str, optional
        As for `pyclgemm.Epilogue`.
    precision : str or jax.lax.DotAlgorithmPreset, optional
        As for `pyclgemm.gemm`. The default of float32 is true float32; ``"TF32_TF32_F32"`` is
        faster, as is ``"TF32_TF32_F32_X3"``, whose error is like float32's.

    Attributes
    ----------
    queue, precision
        As they were given.
    packed : PackedMatrix
        The weight as the layer keeps it.
    epilogue : Epilogue
        Bias and activation.

    Raises
    ------
    ShapeError, DtypeError, ArgumentError
        If weight, bias and activation do not fit together.
    UnsupportedError, AllocationError
        If the device lacks the arithmetic, or has no memory for the packed weight.

    See Also
    --------
    Sequential : Layers one after the other.
    Epilogue : A bias and an activation for `gemm`.
    pack : The packed weight alone.

    Examples
    --------
    >>> import numpy as np
    >>> weight = np.eye(2, dtype=np.float32)
    >>> layer = DenseLayer(queue, weight, activation="relu")
    >>> layer(np.array([[1, -1]], dtype=np.float32))
    array([[1., 0.]], dtype=float32)
    """

    _instead = "save it with save(path), and make it with DenseLayer.load(queue, path)"

    queue: cl.CommandQueue
    packed: PackedMatrix
    epilogue: Epilogue
    precision: PrecisionArgument

    def __init__(
        self,
        queue: cl.CommandQueue,
        weight: Any,
        bias: Any = None,
        activation: ActivationName | None = None,
        *,
        precision: PrecisionArgument = None,
    ) -> None:
        check_queue(queue)
        weight, bias = as_array("weight", weight), as_array("bias", bias)
        check_dtype("weight", weight.dtype)
        if len(weight.shape) != 2:
            raise ShapeError(f"weight is {tuple(weight.shape)}; (in, out) wanted")
        if bias is not None and tuple(bias.shape) != (weight.shape[1],):
            raise ShapeError(
                f"bias is {tuple(bias.shape)}; weight is {tuple(weight.shape)}: "
                f"({weight.shape[1]},) wanted"
            )
        epilogue = Epilogue(to_device(queue, "bias", bias), activation)
        result_dtype(weight.dtype.name, "weight", bias=bias)
        packed = pack(queue, weight, precision=precision)
        vars(self).update(queue=queue, packed=packed, epilogue=epilogue, precision=precision)
        # What `autotune` found, by the rows of an input.
        self.tuned: dict[int, Config] = {}

    @property
    def weight(self) -> cl_array.Array:
        """The weight (in, out) as a new array on the device, in C order.

        The layer keeps it packed alone, so each access unpacks it, by way of the host, and waits.
        The values are exactly those that were given, as an array of NumPy or of the device.

        Examples
        --------
        >>> import numpy as np
        >>> DenseLayer(queue, np.array([[1, 2]], np.float32)).weight.get()
        array([[1., 2.]], dtype=float32)
        """
        return to_device(self.queue, "weight", self.packed.get())

    @property
    def bias(self) -> Any:
        """The bias (out,), the array on the device that the layer adds, or None."""
        return self.epilogue.bias

    @property
    def activation(self) -> ActivationName | None:
        """The name of the activation, or None."""
        return self.epilogue.activation

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The element type of a result without `out`."""
        return np.dtype(result_dtype(self.packed.dtype.name, "weight", bias=self.bias))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to replace what the layer was made of: the weight is packed for all of it."""
        if name in DenseLayer.__annotations__ or isinstance(vars(DenseLayer).get(name), property):
            raise ArgumentError(
                f"{name} of a DenseLayer is fixed, and {described(value)} was assigned to it; make "
                "another layer"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"DenseLayer(weight={self.packed}, epilogue={self.epilogue})"

    @overload
    def __call__(self, x: ArrayT, out: ArrayT | None = None) -> ArrayT: ...
    @overload
    def __call__(self, x: Operand, out: Operand | None = None) -> Any: ...
    def __call__(self, x: Any, out: Any = None) -> Any:
        """Apply the layer.

        Parameters
        ----------
        x : pyopencl.array.Array or numpy.ndarray
            Shape (..., in), with any number of leading dimensions, also none: (in,). They are read
            where they lie: as the rows of one matrix, or, where an array on the device has gaps
            between them, as a batch of matrices in one launch.
        out : pyopencl.array.Array or numpy.ndarray, optional
            Shape (..., out). None allocates an array of the bias's element type, or without a
            bias of the default result type of the weight.

        Returns
        -------
        pyopencl.array.Array or numpy.ndarray
            Shape (..., out), on the device or the host as `x` is.
        """
        x = as_array("x", x)
        if len(x.shape) == 2:
            try:
                return run(self.queue, _call(self, x, out))[0]
            except (ShapeError, DtypeError):
                self._check(x, out)
                raise
        self._check(x, out)
        return through_device(self.queue, {"x": x}, out, functools.partial(run_layer, self))[0]

    def plan(self, x: Any, out: Any = None) -> GemmPlan:
        """Prepare the layer for many calls with inputs of the shape, strides and type of `x`.

        The plan has the weight, and is called without one. Without events, which cost NVIDIA's
        devices 2 us a launch, the call is ``ready(x, out=out, add_event=False)``.

        Parameters
        ----------
        x : pyopencl.array.Array or numpy.ndarray
            Shape (batch, in) or (batch, sequence, in).
        out : pyopencl.array.Array or numpy.ndarray, optional
            As for a call.

        Examples
        --------
        >>> import numpy as np
        >>> import pyopencl.array as cl_array
        >>> layer = DenseLayer(queue, np.eye(2, dtype=np.float32), activation="relu")
        >>> x = cl_array.to_device(queue, np.array([[1, -1]], dtype=np.float32))
        >>> ready = layer.plan(x)
        >>> ready(x).get()
        array([[1., 0.]], dtype=float32)
        """
        self._check(x, out)
        if len(x.shape) not in (2, 3):
            raise ShapeError(
                f"x is {tuple(x.shape)}; a plan takes (batch, in) or (batch, sequence, in)"
            )
        made = plan(
            self.queue, x, self.packed, out=out, epilogue=self.epilogue, precision=self.precision,
            config=self.tuned.get(math.prod(x.shape[:-1])) if _fold(x, out) else None,
        )  # fmt: skip
        made.constant = self.packed
        return made

    def autotune(
        self,
        batch_sizes: Sequence[int],
        top: int = TOP,
        seconds: float = SECONDS,
        *,
        save: bool = True,
    ) -> dict[int, Choice]:
        """Find the fastest kernel for each batch size by `GemmPlan.autotune`, and use it from then.

        Later calls and plans of the layer for the same number of rows take it, saved or not.

        Parameters
        ----------
        batch_sizes : sequence of int
            Rows of the inputs.
        top, seconds, save
            As for `GemmPlan.autotune`, for each size.

        Returns
        -------
        dict of int to Choice
            The fastest kernel for each size.

        Examples
        --------
        >>> import numpy as np
        >>> layer = DenseLayer(queue, np.eye(8, dtype=np.float32))
        >>> choices = layer.autotune([1, 16], top=1, seconds=0.1, save=False)
        >>> list(choices)
        [1, 16]
        """
        check_limits(top, seconds, save)
        is_scalar = isinstance(batch_sizes, np.ndarray) and batch_sizes.ndim == 0
        is_other = is_scalar or isinstance(batch_sizes, (str, bytes, bytearray, Mapping))
        if not isinstance(batch_sizes, Iterable) or is_other:
            raise ArgumentError(f"batch_sizes is {shown(batch_sizes)}; several integers are wanted")
        sizes = list(batch_sizes)
        for rows in sizes:
            if not is_positive_integer(rows):
                raise ArgumentError(
                    f"batch_sizes has {shown(rows)}; integers of at least 1 are wanted"
                )
        choices = {}
        for rows in map(int, sizes):
            numbers = np.random.default_rng(0).integers(-3, 4, (rows, self.packed.shape[0]))
            x = to_device(self.queue, "x", numbers.astype(self.packed.dtype))
            # Without what was found before.
            made = plan(
                self.queue, x, self.packed, epilogue=self.epilogue, precision=self.precision
            )
            choices[rows] = made.autotune(top, seconds, save=save)
            self.tuned.pop(rows, None)
            found = choices[rows].config
            # True float32 may be faster than an algorithm of matrix units; calls find that again.
            if family_of(found).uses_units or not self.packed.precision.multiplied_by_units_alone:
                self.tuned[rows] = found
        return choices

    def save(self, path: Any) -> None:
        """Save the layer to a file, which replaces an old one whole or not at all.

        It has weight, bias, activation and precision, not what `autotune` found for one device.

        Parameters
        ----------
        path : str or os.PathLike
            A name that ends in ``.npz``, or in ``.safetensors``, which needs its package
            (``pip install "pyclgemm[safetensors]"``) and has no complex128.

        Raises
        ------
        FileError
            If the file cannot be written.
        ArgumentError, DtypeError, UnsupportedError
            If the name ends otherwise or is none, or the format or its package is missing.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> layer = DenseLayer(queue, np.array([[1, 2]], np.float32), activation="relu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     layer.save(os.path.join(folder, "layer.npz"))
        ...     DenseLayer.load(queue, os.path.join(folder, "layer.npz")).weight.get()
        array([[1., 2.]], dtype=float32)
        """
        from .storage import write_layers

        write_layers(path, "DenseLayer", [stored(self)])

    @classmethod
    def load(cls, queue: cl.CommandQueue, path: Any) -> DenseLayer:
        """Make the layer that `save` wrote to a file.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            Where the layer runs.
        path : str or os.PathLike
            As for `save`.

        Raises
        ------
        FileError
            If the file cannot be read, or holds something else. Other errors are those of `save`,
            and those of `DenseLayer` if the device does not support the layer.

        See Also
        --------
        save : Writes the file, with an example.
        """
        (layer,) = load_layers(queue, path, "DenseLayer", cls)
        return layer

    def _check(self, x: Any, out: Any) -> None:
        """Raise in the words of a layer for what `gemm` refuses in its own."""
        x, out = as_array("x", x), as_array("out", out)
        shape, weight = tuple(x.shape), self.packed
        depth, width = weight.shape
        if shape[-1:] != (depth,):
            raise ShapeError(
                f"x is {shape}; weight is {weight.shape}: (..., {depth}) wanted"
            ) from None
        if x.dtype != weight.dtype:
            raise DtypeError(
                f"x is {x.dtype} and weight is {weight.dtype}; they must be the same"
            ) from None
        wanted = (*shape[:-1], width)
        if out is not None and tuple(out.shape) != wanted:
            raise ShapeError(
                f"out is {tuple(out.shape)}; x is {shape} and weight is {weight.shape}: "
                f"{wanted} wanted"
            ) from None


def run_layer(
    layer: DenseLayer, x: Any, out: Any = None, wait_for: Any = None
) -> tuple[Any, cl.Event | None]:
    """Apply a layer to an array on the device, of any shape that it takes."""
    out = new_result(layer, x) if out is None else out
    rows, results = as_rows(x), as_rows(out)
    if rows is None or results is None:
        stack = x.shape[:-2]
        call = _call(layer, as_batch(x, stack), as_batch(out, stack), batched=True)
    else:
        call = _call(layer, rows, results)
    return out, run(layer.queue, replace(call, wait_for=wait_for))[1]


def stored(layer: DenseLayer) -> StoredLayer:
    """The parts of a layer on the host, for a file."""
    from .storage import StoredLayer

    bias = None if layer.bias is None else np.ascontiguousarray(to_host(layer.queue, layer.bias))
    precision = layer.precision if layer.precision is None else layer.packed.precision.name
    return StoredLayer(layer.packed.get(), bias, layer.activation, precision)


def load_layers(
    queue: cl.CommandQueue, path: Any, kind: str, make: type[DenseLayer] = DenseLayer
) -> list[DenseLayer]:
    """The layers of a file that an object of the class named `kind` wrote."""
    from .storage import read_layers

    check_queue(queue)
    return read_layers(
        path, kind,
        lambda one: make(queue, one.weight, one.bias, one.activation, precision=one.precision),
    )  # fmt: skip


def new_result(layer: DenseLayer, x: Any) -> Any:
    """A new array on the device for the result of an input."""
    shape = (*x.shape[:-1], layer.packed.shape[1])
    size_of("out", shape, layer.result_dtype)
    return new_array(layer.queue, "out", shape, layer.result_dtype)


def _call(layer: DenseLayer, x: Any, out: Any, *, batched: bool = False) -> Call:
    """The call for a matrix, or for a batch of them."""
    return Call(
        x, layer.packed, None, out, layer.epilogue, precision=layer.precision, batched=batched,
        config=None if batched else layer.tuned.get(x.shape[0]),
    )  # fmt: skip


def _fold(*arrays: Any) -> bool:
    """Whether arrays are each the rows of one matrix; those of the host are, once copied."""
    on_device = (one for one in arrays if isinstance(one, cl_array.Array))
    return all(as_rows(one) is not None for one in on_device)
