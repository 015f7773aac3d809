"""`pack` lays a constant right operand out once, for many products."""

from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from ..codegen.launch import Schedule
from ..codegen.pack import PackedForm, pack_launch
from ..device.traits import traits_of
from ..errors import DtypeError
from ..families.cpu.codegen import panel_launch
from ..problem.matrix import matrix_of, parse_transposition
from ..problem.precision import is_complex, resolve_precision
from ..runtime.arguments import Operand, check_allocated, check_allocator, check_queue
from ..runtime.arrays import PackedMatrix
from ..runtime.launcher import LaunchSequence
from ..runtime.memory import advise_huge_pages, new_buffer, to_device
from ..runtime.queue_state import queue_state
from ..selection.database import load_database
from ..selection.select import packed_layout
from .prepare import check_supported
from .signatures import PrecisionArgument, Transposed


def pack(
    queue: cl.CommandQueue,
    b: Operand,
    *,
    trans_b: Transposed = False,
    precision: PrecisionArgument = None,
    allocator: Any = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> PackedMatrix:
    """Lay a constant right operand out once, in the order in which this device's kernels read it.

    Errors are those of `gemm`.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where the packing runs; products may run on other queues of its context.
    b : pyopencl.array.Array or numpy.ndarray
        op(B) is (k, n). It is copied, so later changes have no effect.
    trans_b, allocator, wait_for
        As for `gemm`.
    precision : str or jax.lax.DotAlgorithmPreset, optional
        The arithmetic of the products.

    Returns
    -------
    PackedMatrix
        `gemm`, `plan` and `explain` take it as `b`.

    See Also
    --------
    DenseLayer : Packs its weight, and adds a bias and an activation.
    PackedMatrix : What it returns.

    Examples
    --------
    >>> import numpy as np
    >>> weight = pack(queue, np.ones((3, 2), np.float32))
    >>> gemm(queue, np.ones((1, 3), np.float32), weight)
    array([[3., 3.]], dtype=float32)
    """
    if isinstance(b, PackedMatrix):
        raise DtypeError("b is a PackedMatrix already; an array is wanted")
    check_queue(queue)
    check_allocator(allocator)
    array = to_device(queue, "b", b)
    dtype = array.dtype.name
    matrix = matrix_of("b", array).operated(
        parse_transposition("trans_b", trans_b), is_complex=is_complex(dtype)
    )
    algorithm = resolve_precision(precision, dtype)
    traits = traits_of(queue.device)
    check_supported(dtype, algorithm, traits)
    layout = packed_layout(matrix.columns, matrix.rows, dtype, algorithm, traits, load_database())
    packed = PackedMatrix((matrix.rows, matrix.columns), array.dtype, algorithm, layout, queue)
    if 0 in packed.shape:
        return packed
    if allocator:
        packed.base_data = allocator(packed.nbytes)
        check_allocated(packed.base_data)
    else:
        packed.base_data = new_buffer(queue.context, "the packed matrix", packed.nbytes)
        advise_huge_pages(queue, packed.base_data)
    if layout.form == "panels":
        launch = panel_launch(matrix, layout, dtype, algorithm)
    else:
        rows, columns = packed.padded_shape
        form = PackedForm(along_k=layout.along_k)
        launch = pack_launch("b", "packed", matrix, "b", dtype, (columns, rows), traits, form)
    operands = {"b": "b", "packed": "out"}
    sequence = LaunchSequence(queue_state(queue), Schedule((launch,)), operands)
    sequence.enqueue((array, packed), wait_for=wait_for)
    return packed
