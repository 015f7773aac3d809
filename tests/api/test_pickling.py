"""Which public objects can be pickled and copied, and what the others say instead."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import pyclgemm
from pyclgemm.codegen.config import Config
from tests.support import typical_configs
from tests.support.checks import raises

pytestmark = pytest.mark.first_runtime

ONES, TENSORS = np.ones((4, 4), "float32"), np.ones((2, 4, 4, 4), "float32")

#: Objects of this process by their class, and what the refusal advises.
HELD = {
    "DenseLayer": (lambda queue: pyclgemm.DenseLayer(queue, ONES), "DenseLayer.load"),
    "GemmPlan": (lambda queue: pyclgemm.plan(queue, ONES, ONES), "plan(...)"),
    "PackedMatrix": (lambda queue: pyclgemm.pack(queue, ONES), "get()"),
    "Sequential": (
        lambda queue: pyclgemm.Sequential([pyclgemm.DenseLayer(queue, ONES)]), "Sequential.load",
    ),
    "TransformPlan": (
        lambda queue: pyclgemm.plan_transform3d(queue, TENSORS, ONES), "plan_transform3d(...)",
    ),
}  # fmt: skip

CONFIGS = [one for one in vars(typical_configs).values() if isinstance(one, Config)]

#: Data by its class, or a function of a queue that makes it.
DATA = {
    **{type(one).__name__: one for one in CONFIGS},
    "Epilogue": pyclgemm.Epilogue(ONES[0], "relu"),
    "Choice": lambda queue: pyclgemm.explain(queue, ONES, ONES),
    "StreamPlan": lambda queue: pyclgemm.stream_gemm(ONES, ONES, devices=queue, explain=True),
    "FileError": pyclgemm.FileError(2, "it cannot be read", "layer.npz"),
    "KernelBuildError": pyclgemm.KernelBuildError("refused", log="line 3", source="__kernel"),
    **{
        name: getattr(pyclgemm, name)("it is 3; 4 is wanted")
        for name in pyclgemm.__all__
        if name.endswith(("Error", "Warning")) and name not in ("FileError", "KernelBuildError")
    },
}

COPIES = {"pickle": lambda one: pickle.loads(pickle.dumps(one)), "deepcopy": copy.deepcopy}


def test_the_tables_have_every_public_class():
    classes = {name for name in pyclgemm.__all__ if inspect.isclass(getattr(pyclgemm, name))}
    assert classes == HELD.keys() | DATA.keys()


@pytest.mark.parametrize("name", HELD)
def test_what_holds_opencl_objects_says_why_it_is_refused(queue, name):
    make, advice = HELD[name]
    held = make(queue)
    for copied in (*COPIES.values(), lambda one: pickle.dumps({"a": [one]}, protocol=2)):
        with raises(pyclgemm.DtypeError, f"a {name} holds OpenCL objects", advice):
            copied(held)
        with raises(TypeError):  # as Python refuses what it cannot pickle
            copied(held)
    shallow = copy.copy(held)
    assert type(shallow) is type(held) and vars(shallow) == vars(held)


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("name", DATA)
def test_data_is_copied(queue, name, copied):
    data = DATA[name](queue) if name in ("Choice", "StreamPlan") else DATA[name]
    got = copied(data)
    assert type(got) is type(data) and str(got) == str(data)
    if name != "StreamPlan":  # it has sets, whose order may differ
        assert repr(got) == repr(data)
    if isinstance(data, Exception):
        assert (got.args, vars(got)) == (data.args, vars(data))
    elif name == "Epilogue":
        np.testing.assert_array_equal(got.bias, data.bias)
    else:
        assert got == data


def test_a_copied_choice_has_no_databases(queue):
    choice = pyclgemm.explain(queue, ONES, ONES)
    assert choice.alternatives
    content = pickle.dumps(choice)
    assert len(content) < 5000 and pickle.loads(content).alternatives == ()


@pytest.mark.parametrize("name", [name for name in DATA if name.endswith("Error")])
def test_errors_come_back_from_a_worker_of_dask(name):
    pickling = pytest.importorskip("tblib.pickling_support")  # Dask sends errors by it
    error = DATA[name]
    pickling.install(error)
    got = pickle.loads(pickle.dumps(error))
    assert type(got) is type(error) and str(got) == str(error)
