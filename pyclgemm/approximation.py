"""What activations are made of where the hardware computes powers of 2: numbers for templates.

``kernels_cl/ptx_activation.mako`` has the formulas. They are in terms of ``t = |x|``:

- gelu: ``log2(Phi(-t))``, Phi the normal distribution, is close to a polynomial. Its
  coefficients, of t^0 first, make the largest error in proportion to ``1 + 2 t`` least (results of
  16 bits, t up to 5), or to ``1 + t`` (of 32 bits, t up to 6). Beyond, the polynomial keeps
  falling, and t Phi(-t) is below 2e-6.
- silu, gelu_tanh, sigmoid: the logistic function of y is ``1 / (1 + exp(-y))``; y is ``x``, or
  ``2 sqrt(2 / pi) (x + 0.044715 x^3)``. The numbers are the factors of x and of x^3 in the power
  of 2 that ``exp(-y)`` is.
"""

from __future__ import annotations

import math

#: By the bytes of a result. Errors of Phi, relative: 7e-5 at 0 and 4e-4 at 5; 2e-6 and 1.1e-5.
_GELU = {
    2: (-1.00005198, -1.14979455, -0.463413265, -0.0483967534, 0.00579362971, -0.000310988237),
    4: (
        -0.999997418, -1.15120597, -0.458611314, -0.0537881668,
        0.00841509111, -0.000905402661, 5.82850683e-05, -1.66547434e-06,
    ),
}  # fmt: skip

_LOG2_E = math.log2(math.e)
_TANH_FACTOR = 2 * math.sqrt(2 / math.pi) * _LOG2_E


def approximation(activation: str | None, result_bytes: int) -> tuple[float, ...]:
    """The numbers of an activation for results of so many bytes; empty if it has none.

    Examples
    --------
    >>> approximation("silu", 2)
    (-1.44269504,)
    """
    numbers = {
        "gelu": _GELU.get(result_bytes, ()),
        "gelu_tanh": (-_TANH_FACTOR, -0.044715 * _TANH_FACTOR),
        "silu": (-_LOG2_E,),
        "sigmoid": (-_LOG2_E,),
    }.get(activation or "", ())
    return tuple(float(f"{number:.9g}") for number in numbers)
