"""Products by torch on copies of a case's matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.contenders import CheckedContender
from benchmarks.contenders.torch_arithmetic import (
    check_supported,
    from_torch,
    set_flags,
    to_torch,
    torch_arithmetic,
)
from benchmarks.products.operands import Operands, padded


class TorchProducts(CheckedContender):
    """The product of each set in turn by cuBLAS; subclasses define how it is launched.

    With `layer`, cuBLASLt's epilogue applies a bias and ReLU. B of int8 is stored by columns, as
    torch needs it. ValueError is raised if torch has no such product.
    """

    def __init__(self, torch: Any, index: int, operands: Operands, *, layer: bool = False) -> None:
        self._torch, self._index = torch, index
        self._case, arithmetic = operands.case, operands.arithmetic
        check_supported(self._case, arithmetic, layer=layer)
        how = torch_arithmetic(arithmetic)
        options = {"out_dtype": torch.float32} if how.function == "mm" else {}
        self._multiply = functools.partial(getattr(torch, how.function), **options)
        self._result_dtype = arithmetic.result_dtype
        self._addend = operands.addend
        self._device = f"cuda:{index}"
        self.precision = how.precision
        self.bias = operands.bias if layer else None
        self._bias = to_torch(torch, operands.bias, self._device) if layer else None
        self._products = self._make_products(operands)
        set_flags(torch, how)

    def _make_products(self, operands: Operands) -> list[tuple[Any, Any, Any]]:
        """Copy the matrices of each set, with the padding between rows of the OpenCL arrays."""
        case = operands.case
        out = np.zeros((*case.stack, case.m, case.n), self._result_dtype)
        matrices = (*operands.host, out if self._addend is None else self._addend[:, : case.n])
        bases = [
            to_torch(self._torch, padded(matrix, case.padding), self._device) for matrix in matrices
        ]
        products = []
        for _ in operands.sets:
            a, b, out = (
                base.clone()[..., : matrix.shape[-1]]
                for base, matrix in zip(bases, matrices, strict=True)
            )
            b = b.mT if case.trans_b else b
            if operands.arithmetic.dtype == "int8":  # which torch takes only in columns
                b = b.T.contiguous().T
            products.append((a.mT if case.trans_a else a, b, out))
        return products

    def _run(self, calls: int) -> None:
        for index in range(calls):
            a, b, out = self._products[index % len(self._products)]
            if self._case.is_scaled:
                factors = {"alpha": self._case.alpha, "beta": self._case.beta}
                self._torch.addmm(out, a, b, **factors, out=out)
            elif self._bias is None:
                self._multiply(a, b, out=out)
            else:
                self._torch._addmm_activation(self._bias, a, b, out=out)

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize(self._index)

    def poison(self) -> None:
        """Fill the result of the first set with NaN or -1; with beta, with the first C again."""
        out = self._products[0][2]
        if self._addend is not None:
            addend = to_torch(self._torch, self._addend, self._device)
            out.copy_(addend[:, : self._case.n])
            return
        out.fill_(-1 if self._result_dtype == "int32" else float("nan"))

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host.

        If a graph adds to the result several times, a single call outside it computes the result.
        """
        if self._case.beta and self.step > 1:
            self.poison()
            with self._torch.cuda.device(self._index):
                self._run(1)
            self.finish()
        return from_torch(self._torch, self._products[0][2], self._result_dtype)
