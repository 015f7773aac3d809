"""What a plan expects of the arrays that it is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import DtypeError, ShapeError


@dataclass(frozen=True)
class ArraySignature:
    """What of an array a plan depends on.

    Attributes
    ----------
    shape, strides : tuple of int
        In elements and in bytes.
    dtype : numpy.dtype
        Element type.
    offset_step : int
        Bytes of which the offset must be a multiple.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    offset_step: int

    def check(self, name: str, array: Any) -> None:
        """Raise unless `array` is laid out as the plan expects."""
        if (
            array.shape == self.shape
            and array.strides == self.strides
            and array.dtype == self.dtype
            and not array.offset % self.offset_step
        ):
            return
        if array.dtype != self.dtype:
            raise DtypeError(f"{name} is {array.dtype}; this plan was made for {self.dtype}")
        for aspect in ("shape", "strides"):
            got, wanted = getattr(array, aspect), getattr(self, aspect)
            if got != wanted:
                raise ShapeError(f"{name} has {aspect} {got}; this plan was made for {wanted}")
        raise ShapeError(
            f"{name} starts {array.offset} bytes into its buffer; this plan was made for "
            f"multiples of {self.offset_step}"
        )
