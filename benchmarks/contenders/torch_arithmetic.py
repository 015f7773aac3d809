"""How torch multiplies in a precision, so that cuBLAS is compared in the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.products.arithmetic import Arithmetic
from benchmarks.products.case import Case
from pyclgemm.problem.precision import Precision, is_complex

#: NumPy types that torch does not accept, and types of the same size that it accepts.
_BITS = {"bfloat16": "int16"}

#: torch._int_mm needs n and k that are multiples of `_INT8_STEP`, and m above `_INT8_ROWS`.
_INT8_STEP, _INT8_ROWS = 8, 16


@dataclass(frozen=True)
class TorchArithmetic:
    """How torch computes an arithmetic."""

    #: The precision of cuBLAS; true float32 in place of split terms, which it lacks.
    precision: Precision
    #: Settings of `torch.backends.cuda.matmul`.
    flags: dict[str, bool]
    #: Name of torch's function.
    function: str


def torch_arithmetic(arithmetic: Arithmetic) -> TorchArithmetic:
    """Describe how torch computes an arithmetic, or the nearest one that it has.

    Examples
    --------
    >>> from benchmarks.products.arithmetic import arithmetic_of
    >>> torch_arithmetic(arithmetic_of("float32", "TF32_TF32_F32_X3")).precision.name
    'F32_F32_F32'
    """
    dtype, precision = arithmetic.dtype, arithmetic.precision
    flags = {
        "allow_tf32": precision.name == "TF32_TF32_F32",
        "allow_fp16_reduced_precision_reduction": False,
        "allow_bf16_reduced_precision_reduction": False,
        "allow_fp16_accumulation": precision.name == "F16_F16_F16",
    }
    if dtype == "float32" and precision.name != "TF32_TF32_F32":
        precision = arithmetic.plain
    function = "matmul" if arithmetic.result_dtype == dtype else "mm"
    return TorchArithmetic(precision, flags, "_int_mm" if dtype == "int8" else function)


def check_supported(case: Case, arithmetic: Arithmetic, *, layer: bool) -> None:
    """Raise ValueError if torch has no such product, with bias and ReLU for a layer."""
    plain = arithmetic.dtype == arithmetic.result_dtype
    if case.batch is not None and (layer or not plain):
        raise ValueError(f"torch has no batch of {arithmetic}{' with bias and ReLU' * layer}")
    if layer and (not plain or is_complex(arithmetic.dtype)):
        raise ValueError(f"torch has no bias and ReLU in the product of {arithmetic}")
    if case.is_scaled and not plain:
        raise ValueError(f"torch has no alpha and beta in the product of {arithmetic}")
    steps = case.n % _INT8_STEP or case.k % _INT8_STEP
    if arithmetic.dtype == "int8" and (case.m <= _INT8_ROWS or steps):
        raise ValueError(
            f"torch._int_mm takes m above {_INT8_ROWS} and multiples of {_INT8_STEP} as n and k"
        )


def set_flags(torch: Any, wanted: TorchArithmetic) -> None:
    """Set torch's flags; raise ValueError if it lacks a flag that must be on."""
    settings = torch.backends.cuda.matmul
    for name, value in wanted.flags.items():
        if hasattr(settings, name):
            setattr(settings, name, value)
        elif value:
            raise ValueError(f"this torch has no {name}")


def to_torch(torch: Any, matrix: NDArray[Any], device: str) -> Any:
    """Copy a NumPy matrix to a CUDA device."""
    name = matrix.dtype.name
    if name not in _BITS:
        return torch.from_numpy(matrix).to(device)
    return torch.from_numpy(matrix.view(_BITS[name])).to(device).view(getattr(torch, name))


def from_torch(torch: Any, tensor: Any, dtype: str) -> NDArray[Any]:
    """Copy a tensor from a CUDA device to a NumPy matrix of type `dtype`."""
    if dtype not in _BITS:
        return np.asarray(tensor.cpu().numpy())
    bits = tensor.contiguous().view(getattr(torch, _BITS[dtype])).cpu().numpy()
    return np.asarray(bits).view(dtype)
