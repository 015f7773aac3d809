"""Dense layers for inference: a packed weight and a fused epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ..codegen.config import Config
from ..errors import ArgumentError, ShapeError, shown
from ..problem.problem import Epilogue
from ..runtime.memory import check_array, to_device
from ..selection.select import Choice
from .autotune import SECONDS, TOP
from .gemm import gemm
from .pack import pack
from .plan import GemmPlan, plan


class DenseLayer:
    """``activation(x @ weight + bias)``, with the weight packed once.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the layer runs.
    weight : pyopencl.array.Array or numpy.ndarray
        Shape (in, out), of any element type that `pyclgemm.gemm` multiplies.
    bias : pyopencl.array.Array or numpy.ndarray, optional
        Shape (out,), of the result's element type: that of the weight, or float32 beside a
        weight of float16 or bfloat16, int32 beside one of int8.
    activation : str, optional
        As for `pyclgemm.Epilogue`.
    precision : str, optional
        As for `pyclgemm.gemm`: float32 stays true float32 unless a faster arithmetic is asked
        for here, such as ``"TF32_TF32_F32"``, or ``"TF32_TF32_F32_X3"`` with an error like
        float32's own. The weight is packed for the kernels of that arithmetic, once.

    Examples
    --------
    >>> import numpy as np
    >>> weight = np.eye(2, dtype=np.float32)
    >>> layer = DenseLayer(queue, weight, activation="relu")
    >>> layer(np.array([[1, -1]], dtype=np.float32))
    array([[1., 0.]], dtype=float32)
    """

    def __init__(
        self,
        queue: cl.CommandQueue,
        weight: Any,
        bias: Any = None,
        activation: str | None = None,
        *,
        precision: str | None = None,
    ) -> None:
        check_array("weight", weight)
        if len(weight.shape) != 2:
            raise ShapeError(f"weight is {tuple(weight.shape)}; (in, out) wanted")
        self.queue = queue
        self.precision = precision
        self.epilogue = Epilogue(to_device(queue, "bias", bias), activation)
        self.weight = pack(queue, weight, precision=precision)
        self._tuned: dict[int, Config] = {}  # by rows of the input
        if bias is not None and tuple(bias.shape) != (self.weight.shape[1],):
            raise ShapeError(
                f"bias is {tuple(bias.shape)}; weight is {self.weight.shape}: "
                f"({self.weight.shape[1]},) wanted"
            )

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Apply the layer.

        Parameters
        ----------
        x : pyopencl.array.Array or numpy.ndarray
            Shape (batch, in).
        out : pyopencl.array.Array or numpy.ndarray, optional
            Shape (batch, out); None allocates one, of the bias's element type, or without a bias
            of the type that the weight gives by itself.

        Returns
        -------
        pyopencl.array.Array or numpy.ndarray
            Shape (batch, out), where `x` is: on the device, or on the host.
        """
        self._check(x)
        return gemm(
            self.queue, x, self.weight, out=out, epilogue=self.epilogue, precision=self.precision,
            config=self._tuned.get(x.shape[0]),
        )  # fmt: skip

    def plan(self, x: Any, out: Any = None) -> GemmPlan:
        """Prepare the layer for inputs like `x`, to run it many times.

        It is called with the weight; without events, which cost NVIDIA's devices 2 us a launch, as
        ``ready(x, layer.weight, out=out, add_event=False)``.

        Parameters
        ----------
        x, out : pyopencl.array.Array
            As for a call of the layer; they lend their shapes, strides and types.

        Examples
        --------
        >>> import numpy as np
        >>> import pyopencl.array as cl_array
        >>> layer = DenseLayer(queue, np.eye(2, dtype=np.float32), activation="relu")
        >>> x = cl_array.to_device(queue, np.array([[1, -1]], dtype=np.float32))
        >>> ready = layer.plan(x)
        >>> ready(x, layer.weight).get()
        array([[1., 0.]], dtype=float32)
        """
        self._check(x)
        return plan(
            self.queue, x, self.weight, out=out, epilogue=self.epilogue, precision=self.precision
        )

    def autotune(
        self,
        batch_sizes: Sequence[int],
        top: int = TOP,
        seconds: float = SECONDS,
        *,
        save: bool = True,
    ) -> dict[int, Choice]:
        """Run the fastest kernels from now on, found by `GemmPlan.autotune` for each batch size.

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
        choices = {}
        for rows in batch_sizes:
            if not isinstance(rows, int) or rows < 1:
                raise ArgumentError(
                    f"batch_sizes has {shown(rows)}; integers of at least 1 are wanted"
                )
            shape = rows, self.weight.shape[0]
            numbers = np.random.default_rng(0).integers(-3, 4, shape)
            x = to_device(self.queue, "x", numbers.astype(self.weight.dtype))
            choices[rows] = self.plan(x).autotune(top, seconds, save=save)
            self._tuned[rows] = choices[rows].config
        return choices

    def _check(self, x: Any) -> None:
        check_array("x", x)
        if len(x.shape) != 2 or x.shape[1] != self.weight.shape[0]:
            raise ShapeError(
                f"x is {tuple(x.shape)}; weight is {self.weight.shape}: "
                f"(batch, {self.weight.shape[0]}) wanted"
            )
