"""The log of trials: what a second run reads of it, whatever happened to the file."""

import threading

import pytest

from pyclgemm import CpuConfig, FileError
from pyclgemm.problem.shape import GemmShape
from pyclgemm.tuning import log as log_module
from pyclgemm.tuning.log import Logged, TuningLog, user_log
from pyclgemm.tuning.process import Outcome
from tests.support.facts import cpu, gpu

optuna = pytest.importorskip("optuna")

CONFIG = CpuConfig(MR=4, NR=16, KC=128, VW=8)
TRIALS = [
    Logged(GemmShape(8, 9, 10, "NT", 7), CONFIG, Outcome("fine", 0.25)),
    Logged(GemmShape(8, 8, 8), CONFIG, Outcome("wrong")),
    Logged(GemmShape(8, 8, 8), CONFIG, Outcome("fine", 1e-9)),
]


@pytest.fixture
def path(tmp_path):
    """A log with all of `TRIALS`, in a folder that did not exist."""
    log = TuningLog(tmp_path / "new" / "log.journal")
    assert list(log) == []
    for trial in TRIALS:
        log.append(trial)
    return log.path


def test_a_log_is_read_as_it_was_written_and_is_a_journal_of_optuna(path):
    assert list(TuningLog(path)) == TRIALS
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(study_name="8x8x8", storage=optuna.storages.JournalStorage(backend))
    assert study.best_value == 1e-9


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda text: text + b'{"op_code": 4, "stu', 3),
        (lambda text: text[:-9], 2),
        (lambda text: text[:-9] + b"\n" + text, 2),
        (lambda text: text + b"\xff\0\n" + text, 3),
        (lambda text: text + b"[" * 10_000 + b"\n", 3),
        (lambda text: text + b"[1]\n" + text, 3),
        # Lines that are whole, but none of a journal.
        (lambda text: text + b'{"op_code": 99, "worker_id": ""}\n', 0),
        (lambda text: b'{"shape": "8x8x8", "status": "fine"}\n' + text, 0),
        (lambda text: b"", 0),
    ],
    ids=range(9),
)
def test_a_damaged_log_is_read_up_to_the_damage_and_goes_on(path, damage, left):
    path.write_bytes(damage(path.read_bytes()))
    log = TuningLog(path)
    assert list(log) == TRIALS[:left]
    log.append(TRIALS[0])
    again = list(TuningLog(path))
    assert len(again) == left + 1 and TRIALS[0] in again


@pytest.mark.parametrize(
    ("study", "value", "attributes"),
    [
        ("8x8", 1.0, {}),
        ("8x8x8", -1.0, {}),
        ("8x8x8", float("inf"), {}),
        ("8x8x8", None, {}),
        ("8x8x8", 1.0, {"status": "odd"}),
        ("8x8x8", 1.0, {"status": ["fine"]}),
        ("8x8x8", 1.0, {"config": 5}),
        ("8x8x8", 1.0, {"config": {"path": "cpu", "MR": "4"}}),
        ("8x8x8", 1.0, {"config": {"path": "no family", "MR": 4}}),
    ],
)
def test_a_trial_that_the_library_cannot_have_written_is_skipped(path, study, value, attributes):
    good = {"status": "fine", "config": {"path": "cpu", **CONFIG.as_dict()}}
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    states = optuna.trial.TrialState
    trial = optuna.trial.create_trial(
        state=states.FAIL if value is None else states.COMPLETE, value=value,
        user_attrs=good | attributes,
    )  # fmt: skip
    optuna.create_study(storage=storage, study_name=study, load_if_exists=True).add_trial(trial)
    assert list(TuningLog(path)) == TRIALS


def test_damage_by_others_during_a_run_is_a_file_error(path):
    log = TuningLog(path)
    with path.open("ab") as file:
        file.write(b"{\n{\n")
    with pytest.raises(FileError, match="the tuning log cannot be written .*damaged"):
        log.append(TRIALS[0])


def test_tuners_that_write_at_once_keep_their_trials(path):
    def write():
        log = TuningLog(path)
        for _ in range(10):
            log.append(TRIALS[2])

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(TuningLog(path))) == len(TRIALS) + 30


def test_each_device_driver_arithmetic_and_text_of_kernels_has_its_log(tmp_path, monkeypatch):
    def name(traits, dtype="float32", precision="F32_F32_F32"):
        return user_log(traits, dtype, precision, tmp_path)

    devices = gpu(), cpu(), gpu(driver="581.0"), gpu(platform="Other")
    halves = (name(gpu(), "float16", f"F16_F16_F{bits}") for bits in (32, 16))
    names = {*map(name, devices), *halves}
    assert len(names) == 6 and name(gpu()) in names
    (tmp_path / "x.mako").write_text("other kernels")
    monkeypatch.setattr(log_module, "resource_folder", lambda name: tmp_path)
    assert name(gpu()) not in names
