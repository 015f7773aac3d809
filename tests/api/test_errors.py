"""Each error of the contract: its class, and the names and values in its message."""

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import pyclgemm
from pyclgemm.codegen.matrix_units import matrix_unit
from pyclgemm.problem.precision import resolve_precision
from tests.support.arrays import upload
from tests.support.buffers import GuardedArray, blank
from tests.support.checks import raises

ARGUMENT, SHAPE, DTYPE = pyclgemm.ArgumentError, pyclgemm.ShapeError, pyclgemm.DtypeError


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


ONES, STACK = ones(4, 4), ones(3, 4, 4)


def gemm(queue, **arguments):
    """Call `pyclgemm.gemm`; missing operands are ones, and a bias becomes an epilogue."""
    arguments = {"a": ONES, "b": ONES, **arguments}
    if "c" in arguments:
        arguments.setdefault("beta", 1)
    if "bias" in arguments:
        arguments["epilogue"] = pyclgemm.Epilogue(bias=arguments.pop("bias"))
    return pyclgemm.gemm(queue, **arguments)


@pytest.mark.parametrize(
    ("built_in", "names"),
    [(ValueError, "ArgumentError ShapeError ConfigError DatabaseError"), (TypeError, "DtypeError"),
     (NotImplementedError, "UnsupportedError"), (OSError, "FileError"),
     (RuntimeError, "KernelBuildError")],
)  # fmt: skip
def test_every_error_is_of_the_library_and_of_a_built_in_class(built_in, names):
    for error in (getattr(pyclgemm, name) for name in names.split()):
        assert issubclass(error, pyclgemm.PyclgemmError) and issubclass(error, built_in)


def each(names, values, error, shown, *parts):
    """A row for each argument and value; the message has the name, the shown value and `parts`."""
    return [
        ({name: value}, error, (name, shown(value), *parts))
        for name in names.split()
        for value in values
    ]


def shape_of(array):
    return str(array.shape)


INTEGERS, WIDE = ONES.astype("int64"), ONES.astype("float64")
NO_PAIR = {"a": ones(3, 4), "b": ones(5, 6)}
INNER_SIZES = "a is (3, 4) and b is (5, 6): a's columns (4) must equal b's rows (5)"

#: Arguments that `gemm` refuses, the error, and parts of its message.
REFUSED = [
    *each("a b c out", [ones(4), ones(), ones(1, 4, 4)], SHAPE, shape_of),
    *each("c out", [ones(4, 5), ones(5, 4), ones(1, 4), ones(16, 1)], SHAPE, shape_of, "(4, 4)"),
    *each("bias", [ones(3), ones(5), ones(1), ones(4, 1), ones(1, 4)], SHAPE, shape_of, "(4,)"),
    (
        {"a": ones(4, 3), "b": ones(6, 5), "trans_a": True, "trans_b": True},
        SHAPE, ("a", "b", "(4)", "(5)"),
    ),
    *each("a b c out", [WIDE], DTYPE, lambda array: "float64", "float32"),
    *each("bias", [WIDE[0]], DTYPE, lambda array: "float64", "float32"),
    *(
        ({"a": ONES.astype(kind), "b": ONES.astype(kind)}, DTYPE, ("a", kind.name, "float32"))
        for kind in map(np.dtype, ("int64", "int16", "uint8", "bool", "longdouble", "object"))
    ),
    ({"b": ONES.astype(ONES.dtype.newbyteorder())}, DTYPE, ("b", "byte order")),
    *each("a b c out", [[[1.0] * 4] * 4, "ones", 3.0], DTYPE, lambda value: type(value).__name__),
    *(({"c": ONES, name: 1j}, DTYPE, (name, "1j", "float32")) for name in ("alpha", "beta")),
    *(
        ({"c": ONES, name: value}, DTYPE, (name,))
        for name in ("alpha", "beta")
        for value in ("1", ONES, [1.0])
    ),
    *each("beta", [1, 0.5, float("nan")], ARGUMENT, str, "c"),
    *each("trans_a trans_b", ["H", "n", "", 1, None, ["N"]], ARGUMENT, repr, '"N"', '"T"', '"C"'),
    *each("precision", ["float32", "F32", "f32_f32_f32", ""], ARGUMENT, repr, "F32_F32_F32"),
    *each("precision", ["F64_F64_F64", "F16_F16_F32"], DTYPE, str, "float32"),
    *each("transpose_a", [True], TypeError, lambda value: ""),
    ({"out": np.broadcast_to(ONES, (4, 4))}, ARGUMENT, ("out", "read-only")),
]  # fmt: skip


def matmul(queue, a=ONES, b=ONES, **options):
    return pyclgemm.matmul(a, b, queue=queue, **options)


def batched(queue, a=STACK, b=STACK, **options):
    return pyclgemm.gemm_batched(queue, a, b, **options)


def packed(queue, name="b", b=ONES, **arguments):
    """Multiply with a packed matrix as the argument `name`."""
    return gemm(queue, **{name: pyclgemm.pack(queue, b)} | arguments)


def layer(queue, x=ONES, out=None, **parameters):
    return pyclgemm.DenseLayer(queue, **{"weight": ONES} | parameters)(x, out)


#: Functions, arguments that they refuse, the error, and a part of its message.
OTHERS = [
    *((function, NO_PAIR, SHAPE, INNER_SIZES)
      for function in (pyclgemm.gemm, pyclgemm.plan, pyclgemm.explain, packed)),
    *((function, {"a": ONES, "b": ONES, "c": ONES}, ARGUMENT, "c is given without beta")
      for function in (pyclgemm.gemm, pyclgemm.explain)),
    (pyclgemm.explain, {"a": INTEGERS, "b": ONES}, DTYPE, "a is int64"),
    (matmul, {"a": INTEGERS, "b": INTEGERS}, DTYPE, "a is int64"),
    (matmul, {"a": ONES.astype("bool"), "b": ONES.astype("bool")}, DTYPE, "a is bool"),
    (matmul, {"b": WIDE}, DTYPE, "b is float64 and a is float32"),
    (matmul, {"b": [[1.0]]}, DTYPE, "b is a list"),
    (matmul, {"out": ones(4, 5)}, SHAPE, "out is (4, 5); the product of a and b is (4, 4)"),
    (matmul, {"out": [[1.0]]}, DTYPE, "out is a list"),
    (matmul, {"dtype": "float16"}, DTYPE, "can be float32 or float64 or complex64"),
    (matmul, {"dtype": "float32", "b": WIDE}, DTYPE, "can be float64 or complex128"),
    (matmul, {"dtype": "int8", "a": INTEGERS, "b": INTEGERS}, DTYPE, "can be float64 or"),
    (matmul, {"dtype": "float64", "out": ones(4, 4)}, DTYPE, "out is float32 and dtype is float64"),
    (matmul, {"precision": "F8"}, ARGUMENT, "precision"),
    (layer, {"x": ones(3, 5)}, SHAPE, "x is (3, 5); weight is (4, 4)"),
    (layer, {"x": WIDE}, DTYPE, "x is float64 and weight is float32"),
    (layer, {"bias": WIDE[0]}, DTYPE, "bias is float64 and weight is float32; the result"),
    (layer, {"bias": ones(5)}, SHAPE, "bias is (5,); weight is (4, 4): (4,) wanted"),
    (layer, {"weight": ones(4)}, SHAPE, "weight is (4,); (in, out) wanted"),
    *((layer, {name: [[1.0]]}, DTYPE, f"{name} is a list") for name in ("weight", "bias", "x")),
    (layer, {"activation": "softmax"}, ARGUMENT, "activation is 'softmax'; known activations are"),
    (layer, {"out": ones(4, 5)}, SHAPE, "out is (4, 5); x is (4, 4) and weight is (4, 4)"),
    (packed, {"a": WIDE}, DTYPE, "b is float32 and a is float64"),
    *((packed, {"trans_b": one}, pyclgemm.PyclgemmError, "trans_b") for one in (True, *"TC")),
    *((packed, {"name": name}, DTYPE, f"{name} is a PackedMatrix") for name in ("a", "c", "out")),
    (pyclgemm.pack, {"b": ones(4)}, SHAPE, "b is 1-D with shape (4,)"),
    (pyclgemm.pack, {"b": INTEGERS}, DTYPE, "b is int64"),
    (batched, {"b": STACK[:2]}, SHAPE, "a has 3 and b has 2 matrices: a batch needs as many"),
    (batched, {"b": STACK[:, :3]}, SHAPE, "a is (4, 4) and b is (3, 4): a's columns (4) must"),
    (batched, {"out": STACK[:2]}, SHAPE, "out is (2, 4, 4), 2 matrices; the batch of a"),
    (batched, {"out": ONES}, SHAPE, "out is (4, 4), 1 matrices; the batch of a and"),
    (batched, {"out": STACK[:, :, :3]}, SHAPE, "out is (4, 3); the product of a and b"),
    (batched, {"c": STACK[:2], "beta": 1.0}, SHAPE, "c is (2, 4, 4), 2 matrices"),
    (batched, {"a": STACK[np.newaxis]}, SHAPE, "a is 4-D with shape (1, 3, 4, 4)"),
    (batched, {"a": [ONES, ONES[:2]]}, SHAPE, "a[1] is (2, 4) and a[0] is (4, 4)"),
    (batched, {"a": []}, SHAPE, "a is an empty sequence"),
    (batched, {"a": [STACK]}, SHAPE, "a[0] is (3, 4, 4)"),
    (batched, {"a": [ONES, [1.0]]}, DTYPE, "a[1] is a list"),
    (batched, {"a": [ONES, WIDE]}, DTYPE, "a[1] is a ndarray of float64 and a[0]"),
    (batched, {"beta": 1.0}, ARGUMENT, "beta is 1.0 without c"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "arguments", "error", "parts"), [*((gemm, *row) for row in REFUSED), *OTHERS]
)
def test_arguments_that_are_refused(queue, call, arguments, error, parts):
    with raises(error, *([parts] if isinstance(parts, str) else parts)):
        call(queue, **arguments)


def test_queues_and_activations_that_are_refused(queue):
    with raises(DTYPE, "queue", "NoneType"):
        gemm(None)
    for call in (lambda: gemm(ONES), lambda: pyclgemm.matmul(a=ONES, b=ONES, queue=queue)):
        with pytest.raises(TypeError):
            call()
    for name in ("RELU", "softmax", ""):
        with raises(ARGUMENT, "activation", repr(name), "relu", "gelu_tanh"):
            pyclgemm.Epilogue(activation=name)


TENSORS = np.ones((2, 4, 4, 4), "float32")


@pytest.mark.parametrize(
    ("argument", "name", "similar"),
    [
        ("precision", "TF32", "TF32_TF32_F32"), ("precision", "f32_f32_f32", "F32_F32_F32"),
        ("precision", "BF16_BF16_FP32", "BF16_BF16_F32"), ("precision", "highest", None),
        ("activation", "RELU", "relu"), ("activation", "gelu-tanh", "gelu_tanh"),
        ("activation", "softmax", None), ("level", "l5", "L5"), ("path", "directly", "direct"),
    ],
)  # fmt: skip
def test_an_unknown_name_brings_the_most_similar_known_one(queue, argument, name, similar):
    calls = {
        "precision": lambda: gemm(queue, precision=name),
        "activation": lambda: pyclgemm.Epilogue(activation=name),
        "level": lambda: pyclgemm.transform3d(queue, TENSORS, ONES, level=name),
        "path": lambda: gemm(queue, config={"path": name}),
    }
    suggestion = f"did you mean {similar!r}?" if similar else ""
    with raises(pyclgemm.PyclgemmError, f"{argument} is {name!r}", "known", suggestion) as caught:
        calls[argument]()
    assert ("did you mean" in str(caught.value)) == bool(similar)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float32", "TF32_TF32_F32"), ("float32", "TF32_TF32_F32_X3"), ("float32", "BF16_BF16_F32"),
        ("float32", "BF16_BF16_F32_X9"), ("float64", None), ("float16", "F16_F16_F16"),
    ],
)  # fmt: skip
def test_arithmetic_that_the_device_lacks(queue, traits, dtype, precision):
    is_able, parts = getattr(traits, dtype, False), [precision or dtype]
    if dtype == "float32":
        is_able = matrix_unit(resolve_precision(precision, dtype), traits)
        parts += ["precision", "F32_F32_F32"]
    if is_able:
        pytest.skip(f"{traits.name} has the arithmetic of {precision or dtype}")
    with raises(pyclgemm.UnsupportedError, *parts):
        gemm(queue, a=ONES.astype(dtype), b=ONES.astype(dtype), precision=precision)


@pytest.mark.parametrize("name", ["a", "b", "c", "out", "bias"])
def test_array_of_another_context(queue, device, name):
    other_context = cl.Context([device])  # a queue of Intel's runtime does not keep it alive
    other = cl.CommandQueue(other_context)
    shape = (4,) if name == "bias" else (4, 4)
    here, there = (cl_array.zeros(one, shape, np.float32) for one in (queue, other))
    arrays = {name: cl_array.zeros(queue, (4, 4), np.float32) for name in ("a", "b")}
    for _ in range(2):  # the second time after a valid call
        with raises(ARGUMENT, name, "context"):
            gemm(queue, **arrays | {name: there})
        gemm(queue, **arrays | {name: here})


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("a", np.s_[:8, :8]), ("b", np.s_[:8, :8]), ("a", np.s_[7:15, 7:15]),
        ("b", np.s_[7:15, 7:15]), ("c", np.s_[1:9, :8]), ("bias", np.s_[0, :8]),
    ],
)  # fmt: skip
def test_destination_over_an_operand_is_refused(queue, name, shared):
    base, other = (cl_array.zeros(queue, (16, 16), np.float32) for _ in range(2))
    arrays = {"a": other[:8, :8], "b": other[:8, :8], name: base[shared]}
    for _ in range(2):  # the second time after a valid call
        with raises(ARGUMENT, f"out shares memory with {name}"):
            gemm(queue, **arrays, out=base[:8, :8])
        gemm(queue, **arrays, out=cl_array.zeros(queue, (16, 16), np.float32)[:8, :8])


def test_destination_with_overlapping_entries_is_refused(queue):
    out = GuardedArray(queue, blank((4, 4), "float32"), (0, 1))
    with raises(ARGUMENT, "out", "share"):
        gemm(queue, out=out.array)


#: Operands and destinations: slices of a stack, and another matrix.
OVERLAPS = [
    (lambda s, other: (s[:3], s[5], s[2:5]), ARGUMENT, "out shares memory with a"),
    (lambda s, other: (s[5], [s[4], s[1], s[2]], [s[3], s[0], s[1]]), ARGUMENT,
     "out shares memory with b"),
    (lambda s, other: (s[3:], s[4], [s[1], s[2], s[1]]), SHAPE, "out[0] and out[2] share memory"),
    (lambda s, other: ([s[0], s[3]], s[5], [s[0], s[3]]), ARGUMENT, "out shares memory with a"),
    # The first launch would write what the second one reads.
    (lambda s, other: ([s[0], other], s[5], [other, s[1]]), ARGUMENT, "out shares memory with a"),
    (lambda s, other: (s[4:], s[4:], cl_array.Array(
        s.queue, (2, 4, 4), np.float32, strides=(16, 16, 4), data=s.base_data
    )), SHAPE, "two of its matrices share memory"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "error", "message"), OVERLAPS)
def test_overlapping_destinations_of_batches_are_refused(queue, arrays, error, message):
    a, b, out = arrays(*upload(queue, ones(6, 4, 4), ONES))
    with raises(error, message):
        pyclgemm.gemm_batched(queue, a, b, out=out)


def test_a_destination_of_a_batch_may_be_its_addend(queue):
    stack, other = upload(queue, ones(6, 4, 4), ONES)
    in_place = [stack[0], other, stack[2]]
    pyclgemm.gemm_batched(queue, stack[3:], stack[4], in_place, beta=1.0, out=in_place)
    for one in in_place:
        np.testing.assert_array_equal(one.get(), 5 * ONES)


def test_a_refused_call_leaves_the_destination_unchanged(queue):
    a, out = upload(queue, ones(3, 4), ONES)
    with pytest.raises(SHAPE):
        pyclgemm.gemm(queue, a, out, out=out)
    np.testing.assert_array_equal(out.get(), ONES)
