"""The suite ``matrix``: targets of matrix units in each precision.

Targets are ratios of speeds in one run, to cuBLAS in the same precision or to another precision.
They are for an H100, and one is for a CPU whose compiler has float16.
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

#: Precisions that may be as exact as float32; the fastest exact one counts.
_SPLIT = tuple(
    arithmetic_of("float32", name)
    for name in ("TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")
)


@dataclass(frozen=True)
class MatrixTarget:
    """The target of a product; one of the arithmetics has to reach it."""

    case: Case
    arithmetics: tuple[Arithmetic, ...]
    #: Least speed over that of the reference.
    ratio: float
    contender: str = PLAN
    reference: str = CUBLAS
    #: None is that of the contender.
    reference_arithmetic: Arithmetic | None = None
    #: Whether the error may not exceed the reference's.
    as_exact: bool = False


@dataclass(frozen=True)
class Run:
    """Products that are measured in one arithmetic without some contenders."""

    arithmetic: Arithmetic
    cases: tuple[Case, ...]
    without: tuple[str, ...] = ()


def _cubes(*sizes: int, dense: bool = False) -> list[Case]:
    text = ",".join(f"{size}x{size}x{size}" for size in sizes)
    return parse_shapes(text, dense=dense, suite=SUITE)


def gpu_targets() -> list[MatrixTarget]:
    """Return the targets of an H100."""
    targets = []
    for sixteen in (_HALF, _BFLOAT):
        ratios = [(case, 1.0) for case in _cubes(4096, 8192, dense=True)]
        ratios += [(case, 0.95) for case in _cubes(2048)]
        ratios += [(case, 0.85) for case in _cubes(1024)]
        ratios += [(case_of(shape, SUITE, dense=True), 0.9) for shape in TUNED["dense"]]
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
    """Return the target of a CPU."""
    return [MatrixTarget(case, (_HALF,), 1.0, PLAN, PLAN, _FLOAT) for case in _cubes(1024)]


def matrix_runs(*, on_cpu: bool) -> list[Run]:
    """Return the products and references of all targets, each once in an arithmetic."""
    targets = cpu_targets() if on_cpu else gpu_targets()
    products: dict[Arithmetic, dict[str, Case]] = {}
    of_mma = [target for target in targets if target.contender == MMA]
    by_mma = {(str(target.case), target.arithmetics[0]) for target in of_mma}
    for target in targets:
        wanted = [*target.arithmetics]
        if target.reference_arithmetic is not None:
            wanted.append(target.reference_arithmetic)
        for arithmetic in wanted:
            cases = products.setdefault(arithmetic, {})
            known = cases.get(str(target.case))
            # Also as a dense layer, if a target in this arithmetic is for one.
            dense = arithmetic in target.arithmetics and target.case.dense
            dense = dense or (known is not None and known.dense)
            cases[str(target.case)] = replace(target.case, dense=dense)
    runs = []
    for arithmetic, cases in products.items():
        with_mma = tuple(case for case in cases.values() if (str(case), arithmetic) in by_mma)
        without_mma = tuple(case for case in cases.values() if case not in with_mma)
        runs += [Run(arithmetic, without_mma, (MMA,))] if without_mma else []
        runs += [Run(arithmetic, with_mma)] if with_mma else []
    return runs
