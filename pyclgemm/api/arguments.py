"""The arguments of a product, whichever function took them, as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyopencl as cl

from ..codegen.config import Config
from ..errors import ArgumentError
from ..families.registry import as_config
from ..problem.matrix import check_scalar
from ..problem.problem import Epilogue
from ..runtime.arrays import MatrixSequence, PackedMatrix
from ..runtime.memory import to_device


class Call(NamedTuple):
    """The arguments of `pyclgemm.gemm` or `pyclgemm.gemm_batched`, under their names.

    Attributes
    ----------
    batched : bool
        Whether operands may be stacks or sequences of matrices.
    """

    a: Any
    b: Any
    c: Any = None
    out: Any = None
    epilogue: Epilogue | None = None
    alpha: Any = 1.0
    beta: Any = None
    trans_a: Any = False
    trans_b: Any = False
    precision: str | None = None
    config: Config | Mapping[str, Any] | None = None
    allocator: Any = None
    wait_for: Sequence[cl.Event] | None = None
    batched: bool = False

    @property
    def bias(self) -> Any:
        """The bias, if there is one."""
        return None if self.epilogue is None else self.epilogue.bias

    @property
    def reads_c(self) -> bool:
        """Whether the addend takes part; of a call that is `checked`."""
        return self.c is not None and self.beta != 0

    def checked(self) -> Call:
        """The same with Python numbers and a configuration; raise where c and beta disagree."""
        call, alpha, beta = self, self.alpha, self.beta
        is_plain = alpha.__class__ is float and (beta is None or beta.__class__ is float)
        if not is_plain or self.a.dtype.kind == "i":
            dtype = self.a.dtype.name
            alpha = check_scalar("alpha", alpha, dtype)
            beta = None if beta is None else check_scalar("beta", beta, dtype)
            call = call._replace(alpha=alpha, beta=beta)
        if beta is None:
            if self.c is not None:
                raise ArgumentError("c is given without beta; give beta, or leave c out")
        elif self.c is None and beta != 0:
            raise ArgumentError(f"beta is {beta!r} without c; give c, or leave beta out")
        return call if self.config is None else call._replace(config=as_config(self.config))

    def key(self) -> tuple[Any, ...]:
        """All that the kernels of a `checked` call depend on, and what is set once on them."""
        (
            a, b, c, out, epilogue, alpha, beta, trans_a, trans_b, precision, config, _, _, batched,
        ) = self  # fmt: skip
        return (
            batched, facts_of(a), facts_of(b), None if c is None else facts_of(c), beta != 0,
            None if out is None else facts_of(out),
            None if epilogue is None else (_bias_facts(epilogue.bias), epilogue.activation),
            trans_a, trans_b, alpha == 0, precision, config,
        )  # fmt: skip

    def on_device(self, queue: cl.CommandQueue) -> Call:
        """The same with copies of what is on the host; `out` lends only its layout."""
        names = ("bias", "a", "b", "c", "out")
        return self.with_arrays(
            **{name: to_device(queue, name, getattr(self, name)) for name in names}
        )

    def arrays(self, out: Any) -> list[Any]:
        """The arrays that the launches of a `checked` call take, in their order."""
        a, b, c, _, epilogue, _, beta = self[:7]
        arrays = [a, b, out]
        if c is not None and beta != 0:
            arrays.append(c)
        if epilogue is not None and epilogue.bias is not None:
            arrays.append(epilogue.bias)
        return arrays

    def with_arrays(self, bias: Any, **arrays: Any) -> Call:
        """The same with other arrays."""
        epilogue = self.epilogue
        if epilogue is not None:
            epilogue = Epilogue(bias, epilogue.activation)
        return self._replace(epilogue=epilogue, **arrays)


def _bias_facts(bias: Any) -> tuple[Any, ...] | None:
    return None if bias is None else facts_of(bias)


def facts_of(array: Any) -> Any:
    """The features of an array that kernels depend on: its alignment, but not its offset."""
    if array.__class__ is PackedMatrix:
        return array.facts
    if array.__class__ is MatrixSequence and array.scattered:
        return array.shape, array.strides, array.alignment, array.dtype, "scattered"
    return array.shape, array.strides, array.offset & 255, array.dtype


#: Makes a `Call` of all its fields in half the time that ``Call(...)`` takes.
call_of: Callable[[tuple[Any, ...]], Call] = functools.partial(tuple.__new__, Call)
