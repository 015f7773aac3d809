"""`Sequential`: layers that run one after the other, with their results on the device."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.queues import default_queue
from ..errors import ArgumentError, DtypeError, ShapeError, shown, wrong_type
from ..host.process import OfThisProcess
from ..runtime.arguments import ArrayT, Operand, as_array, check_queue, dtype_name
from ..runtime.arrays import as_rows
from ..runtime.memory import new_buffer, through_device, to_device
from ..runtime.queue_state import PreparedCalls, queue_state
from .dense import DenseLayer, load_layers, new_result, run_layer, stored
from .plan import GemmPlan
from .prepare import facts_of
from .signatures import PrecisionArgument

if TYPE_CHECKING:  # else it is imported when it is used: most programs do not need it
    from .importers import Activations, Linear

#: Element types that weights of models can be converted to.
_FLOATS = ("float16", "bfloat16", "float32", "float64")

#: Kinds of calls, such as batch sizes, that a network keeps prepared.
_MOST = 16


class Sequential(OfThisProcess):
    """Layers that run one after the other, without the host between them.

    What a batch size needs is prepared at its first call; that of the last 16 is kept. Results
    between layers lie in two buffers, which are as large as the largest batch so far needs.

    Parameters
    ----------
    layers : sequence of DenseLayer
        At least one, all on one queue. Each takes what the one before it gives: as many columns,
        of the same element type.

    Attributes
    ----------
    layers : tuple of DenseLayer
    queue : pyopencl.CommandQueue

    Raises
    ------
    ArgumentError, DtypeError, ShapeError
        If the layers do not fit together; the message has the number of the first that does not.

    See Also
    --------
    DenseLayer : One layer.
    Sequential.from_sklearn : Read a model of scikit-learn.
    Sequential.from_torch : Read a module of torch.
    Sequential.from_onnx : Read an ONNX file.

    Examples
    --------
    >>> import numpy as np
    >>> first = DenseLayer(queue, np.array([[1, -1]], np.float32), activation="relu")
    >>> second = DenseLayer(queue, np.array([[1], [2]], np.float32))
    >>> network = Sequential([first, second])
    >>> network
    Sequential(
      0: (1, 2) float32, relu
      1: (2, 1) float32
    )
    >>> network(np.array([[3], [-3]], np.float32))
    array([[3.],
           [6.]], dtype=float32)
    """

    _instead = "save it with save(path), and make it with Sequential.load(queue, path)"

    def __init__(self, layers: Iterable[DenseLayer]) -> None:
        if not isinstance(layers, Iterable):
            raise wrong_type("layers", layers, "a sequence of DenseLayer")
        self._layers = tuple(layers)
        if not self._layers:
            raise ArgumentError("layers is empty; at least one DenseLayer is wanted")
        for number, layer in enumerate(self._layers):
            if not isinstance(layer, DenseLayer):
                raise wrong_type(f"layers[{number}]", layer, "a DenseLayer")
            if number:
                _check_pair(number, self._layers[number - 1], layer)
        self._prepared = PreparedCalls[list[GemmPlan]](_MOST)
        #: Idle pairs of buffers. There are several only if several threads call.
        self._idle: deque[_Between] = deque(maxlen=4)

    @property
    def layers(self) -> tuple[DenseLayer, ...]:
        """The layers, in order."""
        return self._layers

    @property
    def queue(self) -> cl.CommandQueue:
        """Where the network runs."""
        return self._layers[0].queue

    def __repr__(self) -> str:
        lines = [f"  {number}: {_description(one)}" for number, one in enumerate(self._layers)]
        return "\n".join(["Sequential(", *lines, ")"])

    @overload
    def __call__(self, x: ArrayT, out: ArrayT | None = None) -> ArrayT: ...
    @overload
    def __call__(self, x: Operand, out: Operand | None = None) -> Any: ...
    def __call__(self, x: Any, out: Any = None) -> Any:
        """Apply the layers; return as soon as they are enqueued, unless the result is NumPy's.

        Parameters
        ----------
        x : pyopencl.array.Array or numpy.ndarray
            Shape (..., in), as for a `DenseLayer`, of the element type of the first weight. A NumPy
            array is uploaded once, and the result of the last layer alone is downloaded.
        out : pyopencl.array.Array or numpy.ndarray, optional
            Shape (..., out). None allocates an array.

        Returns
        -------
        pyopencl.array.Array or numpy.ndarray
            Shape (..., out), on the device or the host as `x` is, or `out`.

        Raises
        ------
        ShapeError, DtypeError, ArgumentError
            If `x` or `out` does not fit the layers. Other errors are those of `gemm`.
        """
        first, width = self._layers[0].packed, self._layers[-1].packed.shape[1]
        x, out = as_array("x", x), as_array("out", out)
        if x.shape[-1:] != first.shape[:1]:
            raise ShapeError(f"x is {tuple(x.shape)}; (..., {first.shape[0]}) is wanted")
        if x.dtype != first.dtype:
            raise DtypeError(f"x is {x.dtype}; the first layer takes {first.dtype}")
        shape = (*x.shape[:-1], width)
        if out is not None and tuple(out.shape) != shape:
            raise ShapeError(f"out is {tuple(out.shape)} and x is {tuple(x.shape)}: {shape} wanted")
        return through_device(self.queue, {"x": x}, out, self._run)[0]

    def _run(self, x: Any, out: Any) -> tuple[Any, cl.Event | None]:
        """Run on arrays of the device."""
        if out is None:
            out = new_result(self._layers[-1], x)
        rows, results = as_rows(x), as_rows(out)
        if rows is None or results is None:
            for layer in self._layers[:-1]:
                x, _ = run_layer(layer, x)
            return run_layer(self._layers[-1], x, out)
        return out, self._run_rows(rows, results)

    def _run_rows(self, x: Any, out: Any) -> cl.Event:
        """Run on matrices of the device."""
        try:
            between = self._idle.pop()
        except IndexError:
            between = _Between(self._layers)
        results = between.arrays(x.shape[0])
        key = facts_of(x), facts_of(out)
        plans = self._prepared.get(key)
        if plans is None:
            steps = zip(self._layers, (x, *results), (*results, out), strict=True)
            plans = [layer.plan(before, after) for layer, before, after in steps]
            self._prepared.keep(key, plans)
        wait_for = between.last_use
        for ready, result in zip(plans, results, strict=False):
            ready(x, out=result, wait_for=wait_for, add_event=False)
            x, wait_for = result, None
        event: cl.Event = plans[-1](x, out=out, wait_for=wait_for, return_event=True)[1]
        if not queue_state(self.queue).in_order:
            between.last_use = [event]
        self._idle.append(between)  # not after an error: launches may still use it
        return event

    def save(self, path: Any) -> None:
        """Save the layers to one file; `path` and errors are those of `DenseLayer.save`.

        Examples
        --------
        >>> import os, tempfile
        >>> import numpy as np
        >>> network = Sequential([DenseLayer(queue, np.eye(2, dtype=np.float32))])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     network.save(os.path.join(folder, "network.npz"))
        ...     Sequential.load(queue, os.path.join(folder, "network.npz"))
        Sequential(
          0: (2, 2) float32
        )
        """
        from .storage import write_layers

        write_layers(path, "Sequential", [stored(one) for one in self._layers])

    @classmethod
    def load(cls, queue: cl.CommandQueue, path: Any) -> Sequential:
        """Make the network that `save` wrote to a file; errors are those of `DenseLayer.load`."""
        return cls(load_layers(queue, path, "Sequential"))

    @classmethod
    def from_sklearn(
        cls, model: Any, *, queue: cl.CommandQueue | None = None, dtype: Any = None,
        precision: PrecisionArgument = None,
    ) -> Sequential:  # fmt: skip
        """Make the network of a fitted scikit-learn model.

        The result has a row for each row of `x` and a column for each output, even for one:

        - of an ``MLPRegressor`` and of linear models that regress, what ``predict`` gives;
        - of linear models that classify, what ``decision_function`` gives;
        - of an ``MLPClassifier`` of more than two classes, the logits:
          ``scipy.special.softmax(result, axis=1)`` is what ``predict_proba`` gives;
        - of an ``MLPClassifier`` of two classes, the probability of the second, and of several
          labels, the probability of each.

        Parameters
        ----------
        model : MLPClassifier, MLPRegressor or linear model
            A linear model has `coef_` and `intercept_`, such as ``LinearRegression`` or
            ``LogisticRegression``. On a few random rows its own result is compared with theirs.
        queue : pyopencl.CommandQueue, optional
            Where the network runs; None takes `default_queue`.
        dtype : str or numpy.dtype, optional
            The element type that weights and biases are converted to: "float16", "bfloat16",
            "float32" or "float64". None keeps that of the model, which for a model that was fitted
            to float64 is float64.
        precision : str or jax.lax.DotAlgorithmPreset, optional
            As for `DenseLayer`.

        Raises
        ------
        DtypeError, UnsupportedError
            If the model is none of these, or the device cannot run it.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> model = LinearRegression().fit(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]))
        >>> network = Sequential.from_sklearn(model, queue=queue, dtype="float32")
        >>> network(np.array([[2]], np.float32)).round(3)
        array([[5.]], dtype=float32)
        """
        from .importers import read_sklearn

        return cls._of(read_sklearn(model), queue, dtype, precision)

    @classmethod
    def from_torch(
        cls, module: Any, activation: Activations = None, *,
        queue: cl.CommandQueue | None = None, dtype: Any = None,
        precision: PrecisionArgument = None,
    ) -> Sequential:  # fmt: skip
        """Make the network of a torch module as it computes in eval mode, or of a state_dict.

        Parameters
        ----------
        module : torch.nn.Sequential, torch.nn.Linear or mapping
            A module of Linear, ReLU, GELU, SiLU, Sigmoid and Tanh; Dropout, Identity and Flatten do
            nothing to rows. Or a state_dict, of tensors or NumPy arrays, that has but a weight
            (out, in) and maybe a bias for each layer, in their order.
        activation : str or sequence, optional
            For a state_dict: the activation between the layers (not after the last), or for each
            layer a name or None.
        queue, dtype, precision
            As for `from_sklearn`.

        Raises
        ------
        DtypeError, ArgumentError, UnsupportedError
            If `module` or `activation` is none of these; the message has the number and type of the
            first layer that cannot be read.

        Examples
        --------
        >>> import numpy as np
        >>> state = {"0.weight": np.array([[2.0]], np.float32), "0.bias": np.ones(1, np.float32)}
        >>> Sequential.from_torch(state, queue=queue)(np.array([[3]], np.float32))
        array([[7.]], dtype=float32)
        """
        from .importers import read_torch

        return cls._of(read_torch(module, activation), queue, dtype, precision)

    @classmethod
    def from_onnx(
        cls, path: Any, *, queue: cl.CommandQueue | None = None, dtype: Any = None,
        precision: PrecisionArgument = None,
    ) -> Sequential:  # fmt: skip
        """Make the network of an ONNX model: a chain of linear layers and activations.

        A linear layer is a Gemm, or a MatMul and an Add, with constant weights. An activation is an
        operator, or several that compute the same, as exporters spell GELU and SiLU. Dropout,
        Identity and Flatten do nothing to rows. A softmax is none of these: export the model
        without it.

        Parameters
        ----------
        path : str, os.PathLike, file object or onnx.ModelProto
            The model.
        queue, dtype, precision
            As for `from_sklearn`.

        Raises
        ------
        ArgumentError, UnsupportedError
            If the file holds no such model; the message has the number and type of the first node
            that cannot be read. If onnx is missing (``pip install "pyclgemm[onnx]"``).
        OSError
            If the file cannot be read.

        Examples
        --------
        >>> import numpy as np
        >>> import onnx
        >>> weight = onnx.numpy_helper.from_array(np.array([[2]], np.float32), "w")
        >>> model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 20]>'
        ...     'g (float[N, 1] x) => (float[N, 1] y) {h = MatMul(x, w) y = Relu(h)}')
        >>> model.graph.initializer.extend([weight])
        >>> Sequential.from_onnx(model, queue=queue)(np.array([[3], [-3]], np.float32))
        array([[6.],
               [0.]], dtype=float32)
        """
        from .importers import read_onnx

        return cls._of(read_onnx(path), queue, dtype, precision)

    @classmethod
    def _of(
        cls, layers: Sequence[Linear], queue: cl.CommandQueue | None, dtype: Any,
        precision: PrecisionArgument,
    ) -> Sequential:  # fmt: skip
        if not layers:
            raise ArgumentError("the model has no linear layer; at least one is wanted")
        queue = default_queue() if queue is None else queue
        check_queue(queue)
        convert = _conversion(dtype)
        return cls([
            DenseLayer(
                queue, _uploaded(queue, convert(one.weight)),
                None if one.bias is None else convert(one.bias), one.activation,
                precision=precision,
            )
            for one in layers
        ])  # fmt: skip


class _Between:
    """Two buffers for the results between layers, for one call at a time.

    Layers write to them in turn: one is read while the other is written.
    """

    def __init__(self, layers: Sequence[DenseLayer]) -> None:
        #: On an out-of-order queue the last launch of the last call; the next call waits for it.
        self.last_use: list[cl.Event] | None = None
        self._queue = layers[0].queue
        self._types = [(layer.packed.shape[1], layer.result_dtype) for layer in layers[:-1]]
        self._rows = 0  # that the buffers have space for
        self._buffers: list[cl.Buffer] = []
        self._arrays: dict[int, list[Any]] = {}

    def arrays(self, rows: int) -> list[Any]:
        """The results between layers for an input of `rows` rows."""
        if rows in self._arrays:
            return self._arrays[rows]
        if rows > self._rows or len(self._arrays) == _MOST:
            self._arrays.clear()
        if rows > self._rows or not self._buffers:
            self._rows = rows
            row_bytes = [width * dtype.itemsize for width, dtype in self._types]
            sizes = [rows * max(one) for one in (row_bytes[::2], row_bytes[1::2]) if one]
            # The driver keeps the old buffers until their launches have ended.
            self._buffers = [
                new_buffer(self._queue.context, "a buffer between layers", max(1, size))
                for size in sizes
            ]
        self._arrays[rows] = [
            cl_array.Array(self._queue, (rows, width), dtype, data=self._buffers[number % 2])
            for number, (width, dtype) in enumerate(self._types)
        ]
        return self._arrays[rows]


def _check_pair(number: int, before: DenseLayer, layer: DenseLayer) -> None:
    """Raise unless layer `number` takes what the layer before it gives."""
    if layer.queue != before.queue:
        raise ArgumentError(
            f"layers[{number}] is on another queue than layers[{number - 1}]; one queue is wanted"
        )
    width, depth = before.packed.shape[1], layer.packed.shape[0]
    if width != depth:
        raise ShapeError(
            f"layers[{number}] takes (batch, {depth}) and layers[{number - 1}] gives "
            f"(batch, {width})"
        )
    if before.result_dtype != layer.packed.dtype:
        raise DtypeError(
            f"layers[{number}] takes {layer.packed.dtype} and layers[{number - 1}] gives "
            f"{before.result_dtype}"
        )


def _description(layer: DenseLayer) -> str:
    """Shape, types, bias and activation of a layer."""
    types = dict.fromkeys((layer.packed.dtype.name, layer.result_dtype.name))
    parts = [f"{layer.packed.shape} {' -> '.join(types)}"]
    if layer.epilogue.bias is not None:
        parts.append("bias")
    if layer.epilogue.activation:
        parts.append(layer.epilogue.activation)
    return ", ".join(parts)


def _conversion(dtype: Any) -> Any:
    """The function that converts weights and biases to the type that the user wants."""
    if dtype is None:
        return np.asarray
    name = dtype_name(dtype)
    if name not in _FLOATS:
        raise DtypeError(f"dtype is {shown(dtype)}; one of {', '.join(_FLOATS)} is wanted")
    return functools.partial(np.asarray, dtype=name)


def _uploaded(queue: cl.CommandQueue, weight: Any) -> Any:
    """A weight on the device in the order in which it lies on the host: packing reads either."""
    if weight.flags.c_contiguous:
        return to_device(queue, "weight", weight)
    return to_device(queue, "weight", weight.T).T
