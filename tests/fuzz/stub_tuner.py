"""The command line with a tuner whose measuring process computes its times and uses no device.

All else is real: the processes, the pipe between them, the log, the database, and the signals.
`python stub_tuner.py tune ...` is ``python -m pyclgemm tune ...``.
"""

import functools
import sys
import time
import zlib
from dataclasses import asdict

from pyclgemm.cli.main import main
from pyclgemm.device.traits import typical_traits
from pyclgemm.tuning import tuner, worker as trial_worker
from pyclgemm.tuning.process import Outcome, TrialProcess

_TRIAL_SECONDS = 0.02


class StubBench:
    """Stands in for `pyclgemm.tuning.worker.TrialBench`: times depend on configurations alone."""

    def run(self, trial):
        time.sleep(_TRIAL_SECONDS)
        return Outcome("fine", _seconds(trial.config), trial.rival and _seconds(trial.rival))

    def prepare(self, trials):
        """Build nothing."""


def _seconds(config):
    return 1e-6 * (1 + zlib.crc32(repr(config).encode()) / 2**32)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        trial_worker.open_bench = lambda _: (StubBench(), asdict(typical_traits("x86-64-v4")))
        trial_worker.main()
    command = [sys.executable, __file__, "worker"]
    open_process = functools.partial(TrialProcess, command=command)
    tuner.tune = functools.partial(tuner.tune, open_process=open_process)
    main(prog_name="python -m pyclgemm")
