"""The suite ``limit``: float32 on an H100 at the limit of the device, with targets.

Targets are parts of cuBLAS's speed. Products of few rows may instead reach a part of the
bandwidth at which the device reads its memory, measured in the same run: there the second
operand has to be read once, and no library is faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.products.case import Case, parse_shapes


@dataclass(frozen=True)
class Target:
    """What a product must reach: one of the two."""

    #: Part of cuBLAS's speed.
    ratio: float
    #: Part of the measured read bandwidth.
    bandwidth: float | None = None

    def is_met(self, ratio: float, bandwidth: float) -> bool:
        """Whether a product that reached these parts is good enough; NaN is not measured.

        Examples
        --------
        >>> Target(1.0, 0.85).is_met(0.9, 0.86), Target(1.0).is_met(0.9, 0.86)
        (True, False)
        """
        return ratio >= self.ratio or (self.bandwidth is not None and bandwidth >= self.bandwidth)

    def __str__(self) -> str:
        return f"{self.ratio:.2f}" + (f" or {self.bandwidth:.0%}" if self.bandwidth else "")


def _few_rows(columns: int) -> str:
    return ",".join(f"{m}x{columns}x{columns}" for m in (1, 2, 4, 8, 16, 32))


_TARGETS = (
    ("2048x2048x2048,4096x4096x4096,8192x8192x8192", Target(0.97)),
    ("256x256x256,512x512x512,1024x1024x1024,1000x1000x1000", Target(1.0)),
    ("1000x1000x1000+7,1000x1000x1000:NT+7", Target(1.0)),
    ("64x64x65536,16x16x100000", Target(0.9)),
    (f"{_few_rows(4096)},{_few_rows(1024)}", Target(1.0, 0.85)),
    ("64x3072x768,128x768x3072,8192x128x128,4097x4097x4097", Target(0.95)),
    ("35x8457x2560,5124x700x2048", Target(0.95)),
)


def limit_targets() -> dict[Case, Target]:
    """The products in the order of measuring, each with its target."""
    return {
        case: target for shapes, target in _TARGETS for case in parse_shapes(shapes, suite="limit")
    }
