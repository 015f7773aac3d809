"""The command line with a tuner whose measuring process computes its times: no device is asked.

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
from pyclgemm.tuning import tuner
from pyclgemm.tuning import worker as trial_worker
from pyclgemm.tuning.process import Outcome, TrialProcess

_TRIAL_SECONDS = 0.02


class StubBench:
    """Measures in the place of `pyclgemm.tuning.worker.TrialBench`."""

    def run(self, trial):
        """A time that depends on the configuration alone."""
        time.sleep(_TRIAL_SECONDS)
        seconds = _seconds(trial.config)
        return Outcome("fine", seconds, None if trial.rival is None else _seconds(trial.rival))

    def prepare(self, trials):
        """Nothing is built."""


def _seconds(config):
    return 1e-6 * (1 + zlib.crc32(repr(config).encode()) / 2**32)


def _open_bench(request):
    return StubBench(), asdict(typical_traits("x86-64-v4"))


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        trial_worker.open_bench = _open_bench
        trial_worker.main()
    command = [sys.executable, __file__, "worker"]
    tuner.tune = functools.partial(
        tuner.tune, open_process=functools.partial(TrialProcess, command=command)
    )
    main(prog_name="python -m pyclgemm")
