"""Every argument of every public function: a wrong type raises an error that names the argument.

A new public function or argument fails here until the tables know it.
"""

import inspect
import re
import tempfile
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest
from pyopencl.tools import ImmediateAllocator

import pyclgemm
from pyclgemm.codegen.config import Config
from pyclgemm.runtime import memory
from tests.support.arrays import upload
from tests.support.checks import raises

ONES, VECTOR = np.ones((4, 4), "float32"), np.ones(4, "float32")
TENSORS = np.ones((2, 4, 4, 4), "float32")


class LikeTorch:
    """A tensor of another library that does not share its memory, by no protocol."""

    shape, dtype, ndim = (4, 4), "torch.float32", 2


class OfSubclass(np.ndarray):
    """An array of a library that gives its entries another meaning, such as units."""


NO_ARRAYS = [
    [[1.0] * 4] * 4, (1.0,), "ones", 1.0, True, {}, LikeTorch(), np.ndarray, np.float32(1),
    np.ma.masked_array(ONES, ONES > 2), np.matrix(ONES), ONES.view(OfSubclass),
]  # fmt: skip
NO_FLAGS = [1, 0, "yes", None, [True]]
NO_NAMES = [1, True, ["relu"], b"relu", ONES, "", "nope", str]
NO_FUNCTIONS = [1, "x", [len]]
NO_NUMBERS = [
    True, np.True_, "1", [1.0], ONES, np.array(1.0), 1j, np.timedelta64(1, "ns"),
    np.datetime64(1, "s"),
]  # fmt: skip

#: Values of a wrong type by the name of the argument.
WRONG = {
    "queue": ["queue", 1, 0, None, ONES, cl.CommandQueue],
    "alpha": [*NO_NUMBERS, None],
    "beta": NO_NUMBERS,
    "trans_a": [1, 0, None, "H", ["N"], b"T"],
    "trans_b": [1, 0, None, "H", ["N"], b"T"],
    "epilogue": [pyclgemm.Epilogue, "relu", (VECTOR, "relu"), False, VECTOR, {"bias": VECTOR}],
    "activation": NO_NAMES,
    "precision": NO_NAMES,
    "level": NO_NAMES,
    "config": [1, "cpu", [("path", "cpu")], pyclgemm.CpuConfig, {}, False],
    "allocator": [1, "x", [], lambda size: None, lambda size: bytes(size)],
    "wait_for": [1, [1], [None], "events", cl.Event, (one for one in ())],
    "return_event": NO_FLAGS,
    "add_event": NO_FLAGS,
    "save": NO_FLAGS,
    "top": [0, 1.5, True, "1", None],
    "seconds": [0, True, "1", None, float("nan")],
    "batch_sizes": [3, "3", None, [0], [1.5], [True], ["1"]],
    "report": [1, "x"],
    "subscripts": [1, None, b"ij,jk", ONES, ["ij", "jk"], "", "ij", "ij,jk->iz", str],
    "axes": [-1, 3, 0.5, None, "ab", {}, ONES, ([0], [0, 1]), (0, "1"), int],
    "optimize": [1, 1.5, "nope", b"auto", [1], [(0, 2)], [("0", 1)], {}, ONES, str],
    "operands": [(ONES, value) for value in [*NO_ARRAYS, None]],
    "layers": [1, None, [], "ab", [1], [None], (ONES,), pyclgemm.DenseLayer],
    "model": [1, None, "model", ONES, SimpleNamespace()],
    "module": [1, None, "model", ONES, {}, {"weight": VECTOR}],
    "path": [1, None, ONES, b"", {}],
    "dtype": [1, "int8", "clongdouble", "nope", [], bool, ONES, True],
    "devices": [1, "some", [], [1], [None], b"all", ONES, cl.CommandQueue, {}],
    "memory": [0, -1, 1.5, True, "1", [1]],
    "progress": [1, "x", [len]],
    "explain": NO_FLAGS,
    "device": [True, 1.5, b"0", ["0"], ONES, cl.Device, -1, 99, "nope"],
    **dict.fromkeys(("c", "out", "bias"), NO_ARRAYS),
    **dict.fromkeys(("a", "b", "weight", "x", "tensors", "matrix"), [*NO_ARRAYS, None]),
}

#: Wrong values that some functions take: sequences, whose members are checked, and no queue.
TAKEN = {
    **{("gemm_batched", name): (list, tuple) for name in ("a", "b", "c", "out")},
    **{(name, "queue"): type(None) for name in ("matmul", "einsum", "tensordot")},
    **{(f"Sequential.from_{name}", "queue"): type(None) for name in ("sklearn", "torch", "onnx")},
}


def onnx_model(queue):
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> g (float[N, 4] x) => (float[N, 4] y) '
        "{ y = MatMul(x, w) }"
    )
    model.graph.initializer.extend([onnx.numpy_helper.from_array(ONES, "w")])
    return {"path": model}


def saved(layers):
    """The path of a file of these layers."""
    path = FILES / f"{type(layers).__name__}.npz"
    layers.save(path)
    return {"path": path}


_FOLDER = tempfile.TemporaryDirectory()
FILES = Path(_FOLDER.name)
LINEAR = SimpleNamespace(coef_=ONES, intercept_=VECTOR, predict=lambda x: x @ ONES + VECTOR)
STATE = {"0.weight": ONES, "1.weight": ONES}

#: Arguments of a valid call, or a function that makes them for a queue.
OPERANDS = {"a": ONES, "b": ONES}
VALID = {
    "stream_gemm": OPERANDS,
    **dict.fromkeys(("gemm", "gemm_batched", "matmul", "tensordot", "plan", "explain"), OPERANDS),
    "einsum": {"subscripts": "ij,jk->ik", "operands": (ONES, ONES)},
    "pack": {"b": ONES},
    "Epilogue": {},
    "DenseLayer": {"weight": ONES},
    "DenseLayer.__call__": {"x": ONES},
    "DenseLayer.plan": {"x": ONES},
    "DenseLayer.save": {"path": FILES / "layer.npz"},
    "DenseLayer.load": lambda queue: saved(pyclgemm.DenseLayer(queue, ONES)),
    "DenseLayer.autotune": {"batch_sizes": [1], "top": 1, "seconds": 0.01, "save": False},
    "PackedMatrix.get": {},
    "GemmPlan.__call__": OPERANDS,
    "GemmPlan.autotune": {"top": 1, "seconds": 0.01, "save": False},
    "transform3d": {"tensors": TENSORS, "matrix": ONES},
    "plan_transform3d": {"tensors": TENSORS, "matrix": ONES},
    "TransformPlan.__call__": {"tensors": TENSORS, "matrix": ONES},
    "Sequential": lambda queue: {"layers": [pyclgemm.DenseLayer(queue, ONES)]},
    "Sequential.__call__": {"x": ONES},
    "Sequential.save": {"path": FILES / "network.npz"},
    "Sequential.load": lambda queue: saved(pyclgemm.Sequential([pyclgemm.DenseLayer(queue, ONES)])),
    "Sequential.from_sklearn": {"model": LINEAR},
    "Sequential.from_torch": {"module": STATE, "activation": "relu"},
    "Sequential.from_onnx": onnx_model,
    "calibrate": {"seconds": 1.0},
    "default_queue": {},
    "devices": {},
}

#: Classes whose objects come from functions.
_MADE = ("Choice", "GemmPlan", "PackedMatrix", "StreamPlan", "TransformPlan")


def public_functions():
    """The public functions, classes that users call, and methods, by name."""
    found = {}
    for name in pyclgemm.__all__:
        value = getattr(pyclgemm, name)
        if inspect.isfunction(value):
            found[name] = value
        elif inspect.isclass(value) and not issubclass(
            value, (Exception, Config)
        ):  # `gemm` checks configurations
            if name not in _MADE:
                found[name] = value
            methods = inspect.getmembers(value, inspect.isfunction)
            methods += inspect.getmembers(value, inspect.ismethod)  # of the class
            for method, function in methods:
                if method == "__call__" or not method.startswith("_"):
                    found[f"{name}.{method}"] = function
    return found


FUNCTIONS = public_functions()


def test_the_table_has_every_public_function():
    assert FUNCTIONS.keys() == VALID.keys()


def test_the_table_has_every_argument():
    named = {
        name for function in FUNCTIONS.values() for name in inspect.signature(function).parameters
    }
    assert named - {"self"} == WRONG.keys()


def bound(name, queue):
    """A public function, with an object if it is a method, and a queue if it takes one."""
    made = {
        "PackedMatrix": lambda: pyclgemm.pack(queue, ONES),
        "GemmPlan": lambda: pyclgemm.plan(queue, *upload(queue, ONES, ONES)),
        "DenseLayer": lambda: pyclgemm.DenseLayer(queue, ONES),
        "Sequential": lambda: pyclgemm.Sequential([pyclgemm.DenseLayer(queue, ONES)]),
        "TransformPlan": lambda: pyclgemm.plan_transform3d(queue, *upload(queue, TENSORS, ONES)),
    }
    owner, _, method = name.partition(".")
    if inspect.ismethod(FUNCTIONS[name]):
        return FUNCTIONS[name]
    return getattr(made[owner](), method) if method else getattr(pyclgemm, owner)


def call(function, arguments):
    """Call a function by name, as far as its parameters have one."""
    first, rest = [], {}
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.POSITIONAL_ONLY:
            first.append(arguments[one.name])
        elif one.kind is one.VAR_POSITIONAL:
            first += arguments[one.name]
        elif one.name in arguments:
            rest[one.name] = arguments[one.name]
    return function(*first, **rest)


def fault(function, arguments, name, value):
    """What is wrong with the error that an argument of a wrong type raises; empty if nothing is."""
    given = arguments | {name: value}
    if name == "beta":
        given["c"] = arguments["a"]
    try:
        call(function, given)
    except pyclgemm.PyclgemmError as error:
        is_named = re.search(rf"\b{name}\b", str(error))
        return "" if is_named else f"{name}={value!r}: it is not named in {error}"
    except Exception as error:
        return f"{name}={value!r}: {type(error).__name__}: {error}"
    return f"{name}={value!r} is accepted"


@pytest.mark.parametrize("name", VALID)
def test_a_wrong_type_is_an_error_that_names_the_argument(queue, name):
    function = bound(name, queue)
    valid = VALID[name](queue) if callable(VALID[name]) else VALID[name]
    host = {"queue": queue, **valid}
    device = {
        one: upload(queue, value)[0] if isinstance(value, np.ndarray) else value
        for one, value in host.items()
    }
    if "operands" in host:
        device["operands"] = upload(queue, *host["operands"])
    for arguments in (host,) if name == "stream_gemm" else (host, device):
        if name != "calibrate":
            call(function, arguments)  # so that prepared calls exist for wrong ones to meet
        faults = [
            fault(function, arguments, one, value)
            for one in inspect.signature(function).parameters
            for value in WRONG[one]
            if not isinstance(value, TAKEN.get((name, one), ()))
        ]
        assert not any(faults), "\n".join(filter(None, faults))
        if name != "calibrate":
            call(function, arguments)


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_a_member_of_a_sequence_that_is_no_array(queue, name):
    arguments = {"a": ONES, "b": ONES, "beta": 1.0 if name == "c" else None}
    for value in [*NO_ARRAYS, None, pyclgemm.pack(queue, ONES)]:
        with raises(pyclgemm.PyclgemmError, f"{name}[1] is "):
            pyclgemm.gemm_batched(queue, **arguments | {name: [ONES.copy(), value]})


@pytest.mark.parametrize("name", ["queue", "weight", "bias", "packed", "epilogue", "precision"])
def test_parts_of_a_layer_are_fixed(queue, name):
    layer = pyclgemm.DenseLayer(queue, ONES, VECTOR, "relu")
    for value in (ONES, None, getattr(layer, name)):
        with raises(pyclgemm.ArgumentError, name, "fixed"):
            setattr(layer, name, value)
    np.testing.assert_array_equal(layer(ONES), np.full((4, 4), 5))


def test_a_member_of_jax_s_enumeration_is_a_precision(queue):
    presets = Enum("DotAlgorithmPreset", ["F32_F32_F32", "F64_F64_F64", "DEFAULT"])
    assert (pyclgemm.gemm(queue, ONES, ONES, precision=presets.F32_F32_F32) == 4).all()
    layer = pyclgemm.DenseLayer(queue, ONES, precision=presets.F32_F32_F32)
    assert (layer(ONES) == 4).all()
    others = Enum("Precision", ["F32_F32_F32"])
    for wrong in (presets.F64_F64_F64, presets.DEFAULT, others.F32_F32_F32):
        with raises(pyclgemm.PyclgemmError, "precision is"):
            pyclgemm.gemm(queue, ONES, ONES, precision=wrong)


def test_a_memory_map_is_an_array(queue, tmp_path):
    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 4))
    mapped[:] = ONES
    for got in (pyclgemm.gemm(queue, mapped, ONES), pyclgemm.matmul(mapped, ONES, queue=queue)):
        assert type(got) is np.ndarray and (got == 4).all()


#: Calls whose result, k = 0, is larger than a buffer may be, or than any memory.
SIZES = [200_000, 2**32, 10**10]
LARGE = [
    pyclgemm.gemm, pyclgemm.plan, lambda queue, a, b: pyclgemm.matmul(a, b, queue=queue),
    lambda queue, a, b: pyclgemm.gemm_batched(queue, a[np.newaxis], b[np.newaxis]),
    lambda queue, a, b: pyclgemm.gemm(queue, *upload(queue, a, b)),
    lambda queue, a, b: pyclgemm.gemm(queue, a, b, allocator=ImmediateAllocator(queue)),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("multiply", LARGE)
def test_a_result_that_is_larger_than_the_device_allows(queue, device, multiply, size):
    if 4 * size**2 <= device.max_mem_alloc_size:
        pytest.skip(f"{device.name} has memory for it")
    a, b = np.empty((size, 0), np.float32), np.empty((0, size), np.float32)
    with raises(pyclgemm.AllocationError, "out", str(4 * size**2)):
        multiply(queue, a, b)


def test_an_operand_that_the_host_cannot_copy(queue, monkeypatch):
    def refuse(*_, **__):
        raise MemoryError("no memory for the copy")

    monkeypatch.setattr(memory.np, "array", refuse)
    for call in (pyclgemm.pack, lambda queue, b: pyclgemm.gemm(queue, ONES, b)):
        with raises(pyclgemm.AllocationError, "b" if call is pyclgemm.pack else "a", "64 bytes"):
            call(queue, ONES)
