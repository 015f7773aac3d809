"""What happens to a product on its way to memory: bias and activation, fused into the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError

#: Below, x times a weight is 0 in any type; at minus infinity the product would be NaN.
_OR_ZERO = "x < ({real})(-1000) ? ({real})(0) : "

#: Activations as OpenCL C expressions of ``x``. ``{real}`` is the type of x, a scalar or a
#: vector; ``{f}`` is the suffix of its literals. ``x < 0 ? 0 : x`` keeps a NaN, fmax does not.
#: The two forms of GELU: D. Hendrycks and K. Gimpel, arXiv:1606.08415, section 2.
ACTIVATIONS: dict[str, str] = {
    "relu": "x < ({real})(0) ? ({real})(0) : x",
    "gelu": _OR_ZERO + "0.5{f} * x * (1.0{f} + erf(x * 0.70710678118654752440{f}))",
    "gelu_tanh": (
        _OR_ZERO
        + "0.5{f} * x * (1.0{f} + tanh(0.79788456080286535588{f} * (x + 0.044715{f} * x * x * x)))"
    ),
    "silu": _OR_ZERO + "x / (1.0{f} + exp(-x))",
    "sigmoid": "1.0{f} / (1.0{f} + exp(-x))",
    "tanh": "tanh(x)",
}


def activation_expression(name: str, real: str) -> str:
    """OpenCL C expression that applies activation `name` to ``x`` of type `real`.

    Examples
    --------
    >>> activation_expression("silu", "float4")
    'x < (float4)(-1000) ? (float4)(0) : x / (1.0f + exp(-x))'
    """
    suffix = "" if real.startswith("double") else "f"
    return ACTIVATIONS[name].format(real=real, f=suffix)


@dataclass(frozen=True, eq=False)
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
    ArgumentError
        If the activation is unknown.

    Examples
    --------
    >>> Epilogue(activation="relu").activation
    'relu'
    """

    bias: Any = None
    activation: str | None = None

    def __post_init__(self) -> None:
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ArgumentError(
                f"activation is {self.activation!r}; known activations are {', '.join(ACTIVATIONS)}"
            )
