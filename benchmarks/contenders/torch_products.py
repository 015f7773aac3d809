"""Products by torch on copies of a case's matrices, with the same numbers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from benchmarks.contenders.torch_arithmetic import (
    check_layer,
    check_scaling,
    check_sizes,
    from_torch,
    set_flags,
    to_torch,
    torch_arithmetic,
)
from benchmarks.products.operands import Matrix, Operands


class TorchProducts:
    """A case's product on each of its sets in turn, by cuBLAS; subclasses say how it is launched.

    With `layer`, a bias and ReLU are applied too, by cuBLASLt's epilogue. B of int8, which torch
    wants in columns, is stored so before. ValueError is raised if torch has no such product.
    """

    unrest = 0.0

    def __init__(self, torch: Any, index: int, operands: Operands, *, layer: bool = False) -> None:
        self._torch, self._index = torch, index
        case, arithmetic = operands.case, operands.arithmetic
        check_sizes(arithmetic, case.m, case.n, case.k)
        plain = arithmetic.dtype == arithmetic.result_dtype
        if case.batch is not None and (layer or not plain):
            raise ValueError(f"torch has no batch of {arithmetic}{' with bias and ReLU' * layer}")
        if layer:
            check_layer(arithmetic)
        if case.is_scaled:
            check_scaling(arithmetic)
        self._case = case
        self._addend = operands.sets[0].out.host_base
        self._how = torch_arithmetic(arithmetic)
        self._result_dtype = arithmetic.result_dtype
        self.precision = self._how.precision
        self.bias: NDArray[Any] | None = operands.bias.host[0] if layer else None
        device = f"cuda:{index}"
        self._bias = to_torch(torch, operands.bias.host_base[0], device) if layer else None

        copied: dict[int, Any] = {}

        def copy(matrix: Matrix) -> Any:
            number = id(matrix.host_base)
            if number in copied:  # sets share the host's matrices
                tensor = copied[number].clone()
            else:
                tensor = to_torch(torch, matrix.host_base, device)
                copied[number] = tensor
            return tensor[..., : matrix.columns]

        self._products = []
        for one in operands.sets:
            a, b = copy(one.a), copy(one.b)
            b = b.mT if case.trans_b else b
            if self._how.b_in_columns:
                b = b.T.contiguous().T
            self._products.append((a.mT if case.trans_a else a, b, copy(one.out)))
        set_flags(torch, self._how)

    def _run(self, calls: int) -> None:
        for index in range(calls):
            a, b, out = self._products[index % len(self._products)]
            if self._case.is_scaled:
                factors = {"alpha": self._case.alpha, "beta": self._case.beta}
                self._torch.addmm(out, a, b, **factors, out=out)
            elif self._bias is None:
                self._how.multiply(self._torch, a, b, out)
            else:
                self._torch._addmm_activation(self._bias, a, b, out=out)

    def finish(self) -> None:
        """Wait for the GPU."""
        self._torch.cuda.synchronize(self._index)

    def poison(self) -> None:
        """Fill the result of the first set with NaN, or of integers with -1.

        A result that is added to gets the numbers again that it had at first.
        """
        out = self._products[0][2]
        if self._case.beta:
            addend = to_torch(self._torch, self._addend, f"cuda:{self._index}")
            out.copy_(addend[:, : self._case.n])
            return
        out.fill_(-1 if self._result_dtype == "int32" else float("nan"))

    def result(self) -> NDArray[Any]:
        """Copy the result of the first set to the host.

        Where a graph adds to the result several times, that of a single call outside it.
        """
        if self._case.beta and self.step > 1:
            self.poison()
            with self._torch.cuda.device(self._index):
                self._run(1)
            self.finish()
        return from_torch(self._torch, self._products[0][2], self._result_dtype)
