"""What is known about each shape while the tuner runs, and which trial comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .config import Config
from .gemm_shape import GemmShape
from .path_order import is_small_batch
from .problem import GemmProblem
from .product_traits import traits_of_problem
from .shape_distance import distance
from .trial import FINE, Outcome

#: A candidate this much faster than the best takes its place; less is noise.
_BETTER = 0.985


@dataclass
class Standing:
    """A shape: what was tried on it, and what is best.

    Attributes
    ----------
    shape : GemmShape
        Sizes, and how the matrices are stored.
    problem : GemmProblem
        The product in canonical form.
    baseline : Config or None
        What the library takes without the tuner; it is measured first.
    best : Config or None
        The fastest so far.
    scores : dict of Config to float or None
        Seconds of each configuration as if all had been measured at the same time: each time
        is scaled by how fast the best was in the same turn. None where it cannot be used.
    seconds : dict of Config to float
        As measured last.
    spent : float
        Seconds of the budget that went into this shape.
    gain : float or None
        How many times faster than the baseline the best was when they were timed in turn at
        the end.
    """

    shape: GemmShape
    problem: GemmProblem
    baseline: Config | None = None
    best: Config | None = None
    scores: dict[Config, float | None] = field(default_factory=dict)
    seconds: dict[Config, float] = field(default_factory=dict)
    spent: float = 0.0
    gain: float | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of the product, or of the whole batch."""
        return self.problem.flops

    @property
    def gflops(self) -> float | None:
        """Speed of the best, in GFLOPS."""
        if self.best is None or self.best not in self.seconds:
            return None
        return self.flops / self.seconds[self.best] / 1e9

    def note(self, config: Config, outcome: Outcome) -> bool:
        """Take in an outcome; tells whether it is a new best.

        Examples
        --------
        >>> from pyclgemm.config import CpuConfig
        >>> slow, fast = (CpuConfig(MR=mr, NR=16, KC=256, VW=8) for mr in (1, 6))
        >>> shape = GemmShape(8, 8, 8)
        >>> standing = Standing(shape, shape.problem("float32"))
        >>> standing.note(slow, Outcome("fine", seconds=4.0))
        True
        >>> standing.note(fast, Outcome("fine", seconds=4.0, rival_seconds=8.0))
        True
        >>> standing.scores[fast]  # the machine was at half its speed
        2.0
        """
        if outcome.status != FINE or outcome.seconds is None:
            self.scores.setdefault(config, None)
            return False
        self.seconds[config] = outcome.seconds
        best_score = self.scores.get(self.best) if self.best is not None else None
        if self.best is None or best_score is None or outcome.rival_seconds is None:
            self.scores[config] = outcome.seconds
            if self.best is None or best_score is None or outcome.seconds < best_score:
                self.best = config
                return True
            return False
        self.seconds[self.best] = outcome.rival_seconds
        ratio = outcome.seconds / outcome.rival_seconds
        self.scores[config] = best_score * ratio
        if config != self.best and ratio < _BETTER:
            self.best = config
            return True
        return False

    def best_score(self, family: str | None = None) -> float | None:
        """The least score, of one family or of all."""
        scores = [
            score
            for config, score in self.scores.items()
            if score is not None and family in (None, config.family)
        ]
        return min(scores, default=None)

    def best_of(self, family: str) -> Config | None:
        """The configuration of a family with the least score."""
        usable = [
            (score, config)
            for config, score in self.scores.items()
            if score is not None and config.family == family
        ]
        return min(usable, key=lambda pair: pair[0])[1] if usable else None

    def next_family(self, families: Sequence[str]) -> str:
        """The family to try next: a slow one is tried less often, by the square of its ratio.

        Parameters
        ----------
        families : sequence of str
            Those with configurations left.
        """
        best = self.best_score()

        def weight(family: str) -> float:
            tried = sum(config.family == family for config in self.scores)
            own = self.best_score(family)
            return tried * ((own / best) ** 2 if own and best else 1.0)

        return min(families, key=weight)


def nearest(standing: Standing, others: Iterable[Standing]) -> list[Standing]:
    """The other shapes, the nearest first, as `pyclgemm.shape_distance` has it.

    Batches of small products, which have kernels of their own, are far from all else.
    """
    is_small = is_small_batch(standing.problem)
    wanted = traits_of_problem(standing.problem)

    def far(other: Standing) -> tuple[bool, float]:
        octaves = distance(wanted, traits_of_problem(other.problem))
        return is_small_batch(other.problem) != is_small, octaves

    return sorted((other for other in others if other is not standing), key=far)
