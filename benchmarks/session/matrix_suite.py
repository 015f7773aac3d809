"""The suite ``matrix``: what matrix units must reach, in each precision.

Targets are ratios of speeds in one run: mostly to cuBLAS in the same precision, or to another
precision of this library. They are those for an H100, and one for a CPU whose compiler has half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.contenders.contenders import CUBLAS, CUBLAS_LAYER, LAYER, MMA, PLAN
from benchmarks.products.arithmetic import Arithmetic, arithmetic_of
from benchmarks.products.case import Case, case_of, parse_shapes
from pyclgemm.cli.options import SUITES as TUNED

SUITE = "matrix"

_HALF = arithmetic_of("float16")
_BFLOAT = arithmetic_of("bfloat16")
_FLOAT = arithmetic_of("float32")
_TF32 = arithmetic_of("float32", "TF32_TF32_F32")
_DOUBLE = arithmetic_of("float64")
_INT8 = arithmetic_of("int8")

#: Those that may be as good as float32; the fastest that is counts.
_SPLIT = tuple(
    arithmetic_of("float32", name)
    for name in ("TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")
)


@dataclass(frozen=True)
class MatrixTarget:
    """What a product must reach."""

    case: Case
    #: In which it is computed; one of several has to reach the target.
    arithmetics: tuple[Arithmetic, ...]
    #: How many times as fast as the reference.
    ratio: float
    contender: str = PLAN
    reference: str = CUBLAS
    #: Of the reference, where it is not that of the contender.
    reference_arithmetic: Arithmetic | None = None
    #: Whether the error must not be larger than the reference's.
    as_exact: bool = False


@dataclass(frozen=True)
class Run:
    """Products that are measured in one arithmetic, and the contenders that take no part."""

    arithmetic: Arithmetic
    cases: tuple[Case, ...]
    without: tuple[str, ...] = ()


def _cubes(*sizes: int, dense: bool = False) -> list[Case]:
    text = ",".join(f"{size}x{size}x{size}" for size in sizes)
    return parse_shapes(text, dense=dense, suite=SUITE)


def _layers() -> list[Case]:
    return [case_of(shape, SUITE, dense=True) for shape in TUNED["dense"]]


def gpu_targets() -> list[MatrixTarget]:
    """What an H100 must reach."""
    targets = []
    for sixteen in (_HALF, _BFLOAT):
        ratios = [(case, 1.0) for case in _cubes(4096, 8192, dense=True)]
        ratios += [(case, 0.95) for case in _cubes(2048)]
        ratios += [(case, 0.85) for case in _cubes(1024)]
        ratios += [(case, 0.9) for case in _layers()]
        for case, ratio in ratios:
            targets.append(MatrixTarget(case, (sixteen,), ratio))
            if case.dense:
                targets.append(MatrixTarget(case, (sixteen,), ratio, LAYER, CUBLAS_LAYER))
    targets += [MatrixTarget(case, (_TF32,), 0.95) for case in _cubes(4096, 8192)]
    targets += [MatrixTarget(case, (_DOUBLE,), 0.9) for case in _cubes(2048, 4096)]
    for case in _cubes(4096, 8192):
        targets.append(MatrixTarget(case, (_INT8,), 1.5, PLAN, PLAN, _HALF))
        targets.append(MatrixTarget(case, _SPLIT, 2.0, PLAN, CUBLAS, _FLOAT, as_exact=True))
    targets += [MatrixTarget(case, (_HALF,), 0.55, MMA) for case in _cubes(4096)]
    return targets


def cpu_targets() -> list[MatrixTarget]:
    """What a CPU must reach."""
    return [MatrixTarget(case, (_HALF,), 1.0, PLAN, PLAN, _FLOAT) for case in _cubes(1024)]


def matrix_runs(*, on_cpu: bool) -> list[Run]:
    """What has to be measured, each product once in an arithmetic."""
    targets = cpu_targets() if on_cpu else gpu_targets()
    products: dict[Arithmetic, dict[str, Case]] = {}
    by_mma = {(str(one.case), one.arithmetics[0]) for one in targets if one.contender == MMA}
    for target in targets:
        wanted = [*target.arithmetics]
        if target.reference_arithmetic is not None:
            wanted.append(target.reference_arithmetic)
        for arithmetic in wanted:
            cases = products.setdefault(arithmetic, {})
            known = cases.get(str(target.case))
            # As a dense layer too, if any target asks for it in this arithmetic.
            asks = arithmetic in target.arithmetics and target.case.dense
            dense = asks or (known is not None and known.dense)
            cases[str(target.case)] = replace(target.case, dense=dense)
    runs = []
    for arithmetic, cases in products.items():
        also = tuple(case for case in cases.values() if (str(case), arithmetic) in by_mma)
        others = tuple(case for case in cases.values() if case not in also)
        runs += [Run(arithmetic, others, (MMA,))] if others else []
        runs += [Run(arithmetic, also)] if also else []
    return runs
