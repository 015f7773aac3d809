"""What a tuner found, and databases that it may be added to."""

from pyclgemm import CpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning.process import Outcome
from pyclgemm.tuning.session import Standing
from pyclgemm.tuning.tuner import TuningResult
from tests.support.databases import FLOAT32, a_database, made_file
from tests.support.databases import NARROW as BEST
from tests.support.databases import SQUARE as LARGE
from tests.support.facts import cpu, recorded

SMALL = CpuConfig(MR=2, NR=32, KC=256, VW=16)
SHIPPED = a_database(
    made_file([recorded("1x64x1024", SMALL, 9.0), recorded("512x512x512", LARGE, 99.0)], "cpu")
)


def result(best=BEST, shape=(512, 512, 512), traits=None, types=FLOAT32):
    """What the tuner returns for one product, which took a millisecond."""
    shape = GemmShape.of(shape)
    standing = Standing(shape, shape.problem(*types))
    if best is not None:
        standing.note(best, Outcome("fine", 1e-3))
    return TuningResult(traits or cpu(), *types, (standing,))


def laid_out(text, best=BEST):
    return result(best, GemmShape.parse(text))
