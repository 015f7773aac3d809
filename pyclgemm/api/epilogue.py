"""What is applied to a product as it is stored: bias and activation."""

from dataclasses import dataclass
from typing import Any

from ..errors import wrong_type
from ..problem.problem import ActivationName, check_activation
from ..runtime.arguments import as_array


@dataclass(frozen=True, eq=False, repr=False)
class Epilogue:
    """Bias and activation, applied as ``activation(alpha A B + beta C + bias)``.

    Attributes
    ----------
    bias : pyopencl.array.Array or numpy.ndarray, optional
        Shape (n,), element type of the result; added to every row. With operands of float16 or
        bfloat16 a float32 bias asks for a float32 result.
    activation : str, optional
        "relu", "gelu" (the exact form with erf), "gelu_tanh", "silu", "sigmoid" or "tanh".

    Raises
    ------
    DtypeError
        If the bias is no array.
    ArgumentError
        If the activation is unknown.

    See Also
    --------
    gemm : Applies it as it stores the result.
    DenseLayer : Keeps it beside a packed weight.

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.ones((1, 2), np.float32), np.eye(2, dtype=np.float32)
    >>> gemm(queue, a, b, epilogue=Epilogue(np.array([-3, 3], np.float32), "relu"))
    array([[0., 4.]], dtype=float32)
    """

    bias: Any = None
    activation: ActivationName | None = None

    def __post_init__(self) -> None:
        as_array("bias", self.bias)  # or an error
        if self.activation is not None:
            check_activation(self.activation)

    def __repr__(self) -> str:
        bias = None if self.bias is None else f"{tuple(self.bias.shape)} {self.bias.dtype}"
        return f"Epilogue(bias={bias}, activation={self.activation!r})"


#: The epilogue of a call without one.
NO_EPILOGUE = Epilogue()


def checked_epilogue(epilogue: Any) -> Epilogue:
    """The argument `epilogue`, which may be None; raise `DtypeError` for other types."""
    if epilogue is None:
        return NO_EPILOGUE
    if not isinstance(epilogue, Epilogue):
        raise wrong_type("epilogue", epilogue, 'an object such as Epilogue(bias, "relu")')
    return epilogue
