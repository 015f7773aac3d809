"""The log of trials: what was written is read again, and what is broken does no harm."""

from __future__ import annotations

from pyclgemm import CpuConfig
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning import process as tuning_log
from pyclgemm.tuning.process import Logged, Outcome, TuningLog, user_log
from tests.support.facts import cpu, gpu

CONFIG = CpuConfig(MR=6, NR=16, KC=256, VW=8)
LINES = [
    Logged(GemmShape(8, 9, 10, "NT", 7), CONFIG, Outcome("fine", 0.25)),
    Logged(GemmShape(8, 8, 8), CONFIG, Outcome("wrong")),
]


def test_what_was_written_is_read(tmp_path):
    log = TuningLog(tmp_path / "new" / "log.jsonl")
    assert list(log) == []
    for line in LINES:
        log.append(line)
    assert list(TuningLog(log.path)) == LINES


def test_broken_lines_are_passed_over(tmp_path):
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(LINES[0])
    with log.path.open("a") as file:
        file.write('[1]\n{"shape": [1, 2, 3]}\n{"shape": "1x2x3", "status": "fine", "config": 5}\n')
        file.write('{"shape": "1x2x3", "status": "odd", "config": {"path": "cpu", "MR": 1}}\n')
        valid = '"config": {"path": "cpu", "MR": 6, "NR": 16, "KC": 256, "VW": 8}'
        file.write(f'{{"shape": "1x2x3", "status": [], {valid}}}\n')
        file.write(f'{{"shape": "1x2x3", "status": "fine", "seconds": {10**400}, {valid}}}\n')
        file.write('{"shape": "8x8", "status": "fine", "config": {"path": "cpu", "MR": 1}}\n')
        file.write('{"shape": "8x8x8", "stat\n')
    log.append(LINES[1])
    assert list(log) == LINES


def test_each_device_driver_and_arithmetic_has_its_own(tmp_path):
    def name(traits, dtype="float32", precision="F32_F32_F32"):
        return user_log(traits, dtype, precision, tmp_path)

    names = {
        name(gpu()), name(cpu()), name(gpu(driver="581.0")), name(gpu(platform="Other")),
        name(gpu(), "float16", "F16_F16_F32"), name(gpu(), "float16", "F16_F16_F16"),
    }  # fmt: skip
    assert len(names) == 6
    assert name(gpu()) == name(gpu())


def test_other_kernels_start_anew(tmp_path, monkeypatch):
    before = user_log(gpu(), "float32", "F32_F32_F32", tmp_path)
    (tmp_path / "x.mako").write_text("other kernels")
    monkeypatch.setattr(tuning_log, "resource_folder", lambda name: tmp_path)
    assert user_log(gpu(), "float32", "F32_F32_F32", tmp_path) != before
