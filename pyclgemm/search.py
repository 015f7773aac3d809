"""The search for a fast configuration in one space, by Optuna's sampler.

Optuna 5.0 (T. Akiba et al., KDD 2019) with its multivariate tree-structured Parzen estimator
(J. Bergstra et al., NeurIPS 2011; S. Falkner et al., ICML 2018) was compared with random search
and with the strategies of Kernel Tuner 1.5 (B. van Werkhoven, FGCS 90, 2019) on tables of
measurements: 297 configurations of the cpu family at 384^3 and 255 of the indirect family at
256^3, both on a 2-core Xeon with Intel's runtime, float32, 2026-11-21. The time of the best
found, over that of the best in the table, after so many measurements (mean of 25 seeds; 200
for random search); of the eleven strategies of Kernel Tuner that ran, the best four are
shown, by their names there:

====================== ===== ===== ===== ===== ===== =====
..                     cpu               indirect
---------------------- ----------------- -----------------
measurements           20    40    60    20    40    60
====================== ===== ===== ===== ===== ===== =====
random                 1.123 1.079 1.061 1.139 1.091 1.070
Optuna, multivariate   1.094 1.033 1.013 1.100 1.056 1.034
Optuna, univariate     1.112 1.064 1.053 1.204 1.096 1.085
bayes_opt              1.134 1.056 1.037 1.126 1.067 1.035
hybrid_vndx            1.096 1.057 1.029 1.121 1.066 1.047
adaptive_tabu_greywolf 1.160 1.056 1.028 1.158 1.065 1.045
firefly_algorithm      1.111 1.040 1.026 1.160 1.083 1.078
====================== ===== ===== ===== ===== ===== =====

Optuna's lead is little more than the noise of these means: a first run of 20 seeds had it at
1.130, behind bayes_opt, in the fourth column. What decided: it is asked and told, so that
codegen, checks, timing in turn and isolation stay the library's, while Kernel Tuner compiles and
runs kernels itself and lists every valid point of the space first (billions here); and it brings
8 packages, Kernel Tuner about 30.
"""

from __future__ import annotations

import math
import random
from typing import Any

from .config import Config
from .errors import UnsupportedError
from .search_space import SearchSpace

#: Configurations that are drawn at random before the sampler has anything to go by.
_STARTUP = 8
#: Points that the sampler may propose in vain (known ones, or far from all valid ones).
_TRIES = 20


class Search:
    """Proposes configurations one by one, and learns from what they took.

    Parameters
    ----------
    space : SearchSpace
        Where to search.
    seed : int
        Equal seeds and equal answers give equal proposals.

    Raises
    ------
    UnsupportedError
        If Optuna is not installed.

    Examples
    --------
    >>> from pyclgemm.search_space import search_space
    >>> from pyclgemm.typical import typical_traits
    >>> search = Search(search_space("cpu", "float32", typical_traits("x86-64-v3")), seed=0)
    >>> config = search.ask()
    >>> search.tell(config, 1e-3)
    >>> search.ask() == config
    False
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        optuna = _optuna()
        self._space = space
        self._rng = random.Random(seed)
        self._known: set[Config] = set()
        self._worst = -math.inf
        self._create_trial = optuna.trial.create_trial
        self._failed = optuna.trial.TrialState.FAIL
        # A coordinate's values are ordered, so the sampler sees their places.
        self._distributions = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1)
            for name, values in space.axes.items()
        }
        sampler = optuna.samplers.TPESampler(
            multivariate=True, n_startup_trials=_STARTUP, seed=seed
        )
        self._study = optuna.create_study(sampler=sampler)

    def tell(self, config: Config, seconds: float | None) -> None:
        """Note what a configuration took; None where it cannot be used."""
        self._known.add(config)
        if seconds is not None:
            value = math.log(seconds)
            self._worst = max(self._worst, value)
        elif math.isfinite(self._worst):
            value = self._worst + math.log(2)
        else:
            return
        point = self._space.nearest_point(config)
        places = {name: self._space.axes[name].index(point[name]) for name in self._distributions}
        self._study.add_trial(
            self._create_trial(params=places, distributions=self._distributions, value=value)
        )

    def ask(self) -> Config | None:
        """A configuration that was neither told nor proposed before; None if none is found."""
        for attempt in range(_TRIES):
            point = self._proposed() if attempt < _TRIES // 2 else self._space.draw(self._rng)
            valid = self._space.repaired(point, self._rng)
            config = None if valid is None else self._space.config(valid)
            if config is not None and config not in self._known:
                self._known.add(config)
                return config
        return None

    def _proposed(self) -> dict[str, int]:
        trial = self._study.ask(self._distributions)
        # What is measured is told as a trial of its own: the point may yet be repaired.
        self._study.tell(trial, state=self._failed)
        return {name: self._space.axes[name][place] for name, place in trial.params.items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UnsupportedError(
            f'tuning needs Optuna, which cannot be imported ({error}): pip install "pyclgemm[tune]"'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
