"""Call CLBlast's GEMM on pyopencl arrays through its C interface and ctypes.

`load` raises an error if the library is not installed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_ROW_MAJOR = 101
_TRANSPOSE = {False: 111, True: 112}

#: Meanings of the status codes that a GEMM call may return.
_STATUS = {
    -4: "a temporary buffer could not be allocated",
    -5: "out of device resources",
    -6: "out of host memory",
    -11: "a kernel did not build",
    -54: "too many work-items in a work-group for this device",
    -1017: "a dimension is zero",
    -1016: "leading dimension of a is too small",
    -1015: "leading dimension of b is too small",
    -1014: "leading dimension of out is too small",
    -1011: "buffer of a is too small",
    -1010: "buffer of b is too small",
    -1009: "buffer of out is too small",
    -2041: "no entry for this device in its database",
    -2044: "the device does not advertise double precision (cl_khr_fp64)",
    -2045: "the device does not advertise half precision (cl_khr_fp16)",
    -2046: "not enough local memory on this device",
}

_SONAMES = ("libclblast.so.1", "libclblast.so", "libclblast.dylib", "clblast.dll")


class CLBlastNotFoundError(RuntimeError):
    """CLBlast's shared library is missing or cannot be loaded."""


class CLBlastError(RuntimeError):
    """A CLBlast routine returned a status other than success."""

    def __init__(self, routine: str, status: int) -> None:
        meaning = _STATUS.get(status, "see CLBlastStatusCode in clblast_c.h")
        super().__init__(f"{routine} returned status {status}: {meaning}")
        self.status = status


class _ComplexFloat(ctypes.Structure):
    """C's cl_float2, which is passed by value in one register."""

    _fields_ = [("re", ctypes.c_float), ("im", ctypes.c_float)]


class _ComplexDouble(ctypes.Structure):
    """C's cl_double2, which is passed by value in two registers."""

    _fields_ = [("re", ctypes.c_double), ("im", ctypes.c_double)]


@dataclass(frozen=True)
class _Routine:
    """A GEMM of one element type: its name, and type and conversion of its scalars."""

    name: str
    scalar: type[Any]
    convert: Callable[[complex], Any]


def _half_bits(value: complex) -> ctypes.c_uint16:
    return ctypes.c_uint16(int(np.float16(value.real).view(np.uint16)))


_ROUTINES = {
    "float16": _Routine("CLBlastHgemm", ctypes.c_uint16, _half_bits),
    "float32": _Routine("CLBlastSgemm", ctypes.c_float, lambda v: ctypes.c_float(v.real)),
    "float64": _Routine("CLBlastDgemm", ctypes.c_double, lambda v: ctypes.c_double(v.real)),
    "complex64": _Routine("CLBlastCgemm", _ComplexFloat, lambda v: _ComplexFloat(v.real, v.imag)),
    "complex128": _Routine(
        "CLBlastZgemm", _ComplexDouble, lambda v: _ComplexDouble(v.real, v.imag)
    ),
}


def _argument_types(scalar: type[Any], *, batched: bool) -> list[type[Any]]:
    """Return the types of layout, transposes, sizes, alpha, A, B, beta, C, batch, queue, event."""
    matrix = [ctypes.c_void_p, *[ctypes.c_size_t] * (3 if batched else 2)]
    return [
        *[ctypes.c_int] * 3,
        *[ctypes.c_size_t] * 3,
        scalar, *matrix, *matrix,
        scalar, *matrix,
        *[ctypes.c_size_t] * batched,
        ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p),
    ]  # fmt: skip


def _matrix_arguments(name: str, array: Any) -> tuple[Any, ...]:
    """Return buffer, offset, leading dimension and, for a batch, the distance of the matrices."""
    itemsize = array.dtype.itemsize
    if array.ndim not in (2, 3):
        raise ValueError(f"{name} has {array.ndim} dimensions; CLBlast's GEMM takes 2, or 3")
    rows, columns = array.shape[-2:]
    row_bytes, column_bytes = array.strides[-2:]
    if columns > 1 and column_bytes != itemsize:
        raise ValueError(
            f"{name} has strides {array.strides}; CLBlast needs neighbours in a row "
            f"{itemsize} bytes apart"
        )
    leading = row_bytes // itemsize if rows > 1 else columns
    if leading < columns or row_bytes % itemsize or array.offset % itemsize:
        raise ValueError(
            f"{name} has shape {array.shape}, strides {array.strides} and offset {array.offset}; "
            f"CLBlast needs rows apart by a multiple of {itemsize} bytes, and not overlapping"
        )
    return (
        ctypes.c_void_p(array.base_data.int_ptr),
        ctypes.c_size_t(array.offset // itemsize),
        ctypes.c_size_t(leading),
        *(ctypes.c_size_t(stride // itemsize) for stride in array.strides[:-2]),
    )


class CLBlast:
    """A loaded CLBlast library, made by `load`.

    `path` is the file, with links resolved if possible. `version` is read from the file name, since
    the C interface has no call for it; else it is "unknown version".
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.path = _loaded_path(library)
        match = re.search(r"\.so\.(\d+\.\d+\.\d+)$", self.path)
        self.version = match.group(1) if match else "unknown version"

    def __str__(self) -> str:
        return f"{self.version} ({self.path})"

    def prepare(
        self,
        queue: Any,
        a: Any,
        b: Any,
        out: Any,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: complex = 1.0,
        beta: complex = 0.0,
    ) -> Callable[[], None]:
        """Convert the arguments of ``out = alpha op(a) op(b) + beta out`` once.

        The matrices are pyopencl arrays of one dtype, row-major, with or without padding between
        rows; with three dimensions they are a batch. Of alpha and beta only the real parts count
        for a real dtype. The returned function enqueues the product on `queue` at each call, and
        raises `CLBlastError`.
        """
        routine = _ROUTINES.get(str(out.dtype))
        if routine is None or not a.dtype == b.dtype == out.dtype:
            raise ValueError(
                f"a, b and out are {a.dtype}, {b.dtype} and {out.dtype}; "
                f"CLBlast needs one of {', '.join(_ROUTINES)} for all three"
            )
        inner_a, rows = a.shape[-2:] if trans_a else a.shape[:-3:-1]
        columns, inner_b = b.shape[-2:] if trans_b else b.shape[:-3:-1]
        batch = out.shape[:-2]
        same_batch = a.shape[:-2] == b.shape[:-2] == batch
        if inner_a != inner_b or out.shape[-2:] != (rows, columns) or not same_batch:
            raise ValueError(
                f"op(a) is {(rows, inner_a)}, op(b) is {(inner_b, columns)}, out is {out.shape}; "
                "they do not fit"
            )
        name = routine.name + ("StridedBatched" if batch else "")
        function = getattr(self._library, name)
        function.argtypes = _argument_types(routine.scalar, batched=bool(batch))
        function.restype = ctypes.c_int
        arguments = (
            _ROW_MAJOR, _TRANSPOSE[trans_a], _TRANSPOSE[trans_b],
            rows, columns, inner_a,
            routine.convert(complex(alpha)),
            *_matrix_arguments("a", a),
            *_matrix_arguments("b", b),
            routine.convert(complex(beta)),
            *_matrix_arguments("out", out),
            *(ctypes.c_size_t(count) for count in batch),
            ctypes.byref(ctypes.c_void_p(queue.int_ptr)), None,
        )  # fmt: skip
        keep_alive = (queue, a, b, out)

        def call(_alive: object = keep_alive) -> None:
            status = function(*arguments)
            if status:
                raise CLBlastError(name, status)

        return call


def load(path: str | None = None) -> CLBlast:
    """Load CLBlast's shared library from `path`, or from the usual places of the system."""
    # The loader searches first: unlike find_library it respects LD_LIBRARY_PATH without a compiler.
    names = [path] if path else [*_SONAMES, ctypes.util.find_library("clblast") or ""]
    causes = []
    for name in filter(None, names):
        try:
            return CLBlast(ctypes.CDLL(name))
        except OSError as error:
            causes.append(str(error))
    if path:
        raise CLBlastNotFoundError(f"CLBlast could not be loaded from {path}: {causes[0]}")
    raise CLBlastNotFoundError(
        "CLBlast was not found: its column is left out. Install it (Debian and Ubuntu: "
        "apt install libclblast1) or name the shared library with --clblast PATH."
    )


def _loaded_path(library: ctypes.CDLL) -> str:
    """Return the file of a loaded library; only Linux tells more than the requested name."""
    name = library._name
    maps = Path("/proc/self/maps")
    if not os.path.isabs(name) and maps.exists():
        for line in maps.read_text().splitlines():
            candidate = line.partition("/")
            if candidate[1] and Path(candidate[2]).name.startswith("libclblast"):
                name = "/" + candidate[2]
                break
    return os.path.realpath(name) if os.path.isabs(name) else name
