"""Networks of scikit-learn, torch and ONNX models compute what these libraries compute."""

import sys
import warnings
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pyopencl as cl
import pytest

import pyclgemm
from pyclgemm import Sequential
from pyclgemm.api import importers
from tests.support.arrays import draw
from tests.support.checks import raises
from tests.support.reference import ACTIVATIONS, Expected, assert_close, expected_network

pytestmark = pytest.mark.any_runtime

UNSUPPORTED, DTYPE = pyclgemm.UnsupportedError, pyclgemm.DtypeError


def assert_both(ours, theirs, expected):
    """Our result and the other library's are within the bound of the same arithmetic."""
    assert ours.dtype == theirs.dtype
    assert_close(ours, expected)
    assert_close(theirs.reshape(ours.shape), expected)


def test_the_functions_that_tell_activations_apart():
    for name, values in importers._known_values().items():
        points = importers._POINTS
        wanted = ACTIVATIONS[name].function(points) if name else points
        np.testing.assert_allclose(values, wanted, rtol=1e-13, atol=1e-13)
    assert importers._known_values().keys() == {None, *ACTIVATIONS}


# ------------------------------------------------------------------------------ scikit-learn


@pytest.fixture
def samples(rng):
    """Rows, and a number, two numbers, one of two classes, of three, and three labels for each."""
    (x,) = draw(rng, (60, 7), dtype="float64")
    scores = x[:, :3] + 0.1 * rng.standard_normal((60, 3))
    targets = {
        "number": scores[:, 0],
        "numbers": scores[:, :2],
        "two": (scores[:, 0] > 0).astype(int),
        "three": scores.argmax(1),
        "labels": (scores > 0).astype(int),
    }
    return x, targets


def fitted(model, x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a few steps do not converge
        return model.fit(x, y)


#: Hidden activation of scikit-learn, ours, and what is fitted.
PERCEPTRONS = [
    ("relu", "relu", "number"),
    ("tanh", "tanh", "numbers"),
    ("identity", None, "two"),
    ("logistic", "sigmoid", "three"),
    ("relu", "relu", "labels"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("hidden", "ours", "kind"), PERCEPTRONS)
def test_perceptrons(queue, require, samples, hidden, ours, kind, dtype):
    neural = pytest.importorskip("sklearn.neural_network")
    special = pytest.importorskip("scipy.special")
    require(dtype)
    x, targets = samples[0].astype(dtype), samples[1]
    make = neural.MLPRegressor if "number" in kind else neural.MLPClassifier
    model = make(hidden_layer_sizes=(9, 5), activation=hidden, max_iter=5, random_state=0)
    model = fitted(model, x, targets[kind])
    last = "sigmoid" if kind in ("two", "labels") else None
    layers = zip(model.coefs_, model.intercepts_, (ours, ours, last), strict=True)
    expected = expected_network(x, list(layers))
    got = Sequential.from_sklearn(model, queue=queue)(x)
    if make is neural.MLPRegressor:
        assert_both(got, model.predict(x), expected)
    elif kind == "labels":
        assert_both(got, model.predict_proba(x), expected)
    elif kind == "two":
        assert_both(got, model.predict_proba(x)[:, 1], expected)
    else:
        assert_close(got, expected)
        # The absolute values of a row of softmax's derivatives add up to 1/2 at most. A logit of a
        # few units rounds by some eps on each side.
        eps = float(np.finfo(dtype).eps)
        bound = expected.bound.max(1, keepdims=True) + 16 * eps + np.zeros((1, 3))
        assert_close(model.predict_proba(x), Expected(special.softmax(got, axis=1), bound))


def linear_models():
    linear = pytest.importorskip("sklearn.linear_model")
    svm = pytest.importorskip("sklearn.svm")
    return [
        (linear.LinearRegression(), "number", "predict"),
        (linear.LinearRegression(fit_intercept=False), "numbers", "predict"),
        (linear.Lasso(0.01), "number", "predict"),
        (linear.LogisticRegression(), "two", "decision_function"),
        (linear.LogisticRegression(), "three", "decision_function"),
        (linear.RidgeClassifier(), "three", "decision_function"),
        (svm.LinearSVC(), "two", "decision_function"),
    ]


@pytest.mark.parametrize("number", range(7))
def test_linear_models(queue, require, samples, number):
    require("float64")
    x, targets = samples
    model, kind, method = linear_models()[number]
    model = fitted(model, x, targets[kind])
    coef = np.atleast_2d(model.coef_)
    bias = np.broadcast_to(model.intercept_, (len(coef),)).astype(coef.dtype)
    expected = expected_network(x, [(coef.T, bias, None)])
    got = Sequential.from_sklearn(model, queue=queue)(x)
    assert_both(got, getattr(model, method)(x), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_weights_are_converted_to_the_type_that_is_named(queue, require, samples, dtype):
    linear = pytest.importorskip("sklearn.linear_model")
    require(dtype)
    x, targets = samples[0].astype(dtype), samples[1]
    model = linear.LinearRegression().fit(samples[0], targets["numbers"])
    got = Sequential.from_sklearn(model, queue=queue, dtype=dtype)(x)
    layer = (model.coef_.T.astype(dtype), model.intercept_.astype(dtype), None)
    assert got.dtype == dtype
    assert_close(got, expected_network(x, [layer]))
    for wrong in ("int8", "complex64", "text", 5):
        with raises(DTYPE, "dtype is", repr(wrong), "float32"):
            Sequential.from_sklearn(model, queue=queue, dtype=wrong)


def test_models_of_scikit_learn_that_cannot_be_read(queue, samples):
    linear = pytest.importorskip("sklearn.linear_model")
    svm = pytest.importorskip("sklearn.svm")
    neural = pytest.importorskip("sklearn.neural_network")
    pipeline = pytest.importorskip("sklearn.pipeline")
    x, targets = samples
    regression = linear.LinearRegression()
    counts = fitted(neural.MLPRegressor(hidden_layer_sizes=(3,), max_iter=2), x, targets["number"])
    counts.out_activation_ = "exp"  # of loss="poisson", which is new in scikit-learn
    for model, error, parts in [
        (linear.PoissonRegressor().fit(x, targets["two"]), UNSUPPORTED, ["predict", "Poisson"]),
        (svm.SVC(kernel="linear").fit(x, targets["three"]), UNSUPPORTED, ["SVC", "coef_.T"]),
        (pipeline.make_pipeline(regression).fit(x, targets["number"]), DTYPE, ["a Pipeline"]),
        (neural.MLPClassifier(), DTYPE, ["model is a MLPClassifier", "fitted"]),
        (counts, UNSUPPORTED, ["layer 1 of the MLPRegressor", "'exp'"]),
        (None, DTYPE, ["model is None"]),
    ]:
        with raises(error, *parts):
            Sequential.from_sklearn(model, queue=queue)


# ------------------------------------------------------------------------------ torch


def state_of(rng, *widths, dtype="float32"):
    """A state_dict of NumPy arrays, and its layers without activations."""
    state, layers = {}, []
    for number, (depth, width) in enumerate(zip(widths, widths[1:], strict=False)):
        weight, bias = draw(rng, (width, depth), (width,), dtype=dtype)
        state |= {f"body.{3 * number}.weight": weight, f"body.{3 * number}.bias": bias}
        layers.append((weight.T, bias))
    return state, layers


@pytest.mark.parametrize(
    ("activation", "names"),
    [("relu", ("relu", "relu", None)), (["tanh", None, "sigmoid"], ("tanh", None, "sigmoid"))],
)
def test_a_state_dict_of_numpy_arrays_needs_no_torch(queue, rng, activation, names):
    state, layers = state_of(rng, 8, 20, 7, 3)
    (x,) = draw(rng, (5, 8))
    with (
        patch.dict(sys.modules, torch=None),
        patch("pyopencl.enqueue_copy", wraps=cl.enqueue_copy) as copy,
    ):
        network = Sequential.from_torch(state, activation, queue=queue)
        assert copy.call_count == len(state)  # each array is uploaded once
    layers = [(*layer, name) for layer, name in zip(layers, names, strict=True)]
    assert_close(network(x), expected_network(x, layers))


def test_state_dicts_that_cannot_be_read(queue, rng):
    state, _ = state_of(rng, 8, 20, 3)
    norm = {"norm.weight": np.ones(3), "norm.bias": np.ones(3), "norm.running_mean": np.ones(3)}
    for given, activation, error, parts in [
        (state, None, pyclgemm.ArgumentError, ["activation is None", "state_dict"]),
        (state, ["relu"], pyclgemm.ArgumentError, ["activation is ['relu']", "each of 2"]),
        (state, 5, pyclgemm.ArgumentError, ["activation is 5", "each of 2"]),
        (state, "swish", pyclgemm.ArgumentError, ["'swish'", "silu"]),
        (state | norm, "relu", UNSUPPORTED, ["layer 2", "'norm'", "weight (3,)", "running_mean"]),
        ({"model": state}, "relu", UNSUPPORTED, ["layer 0"]),
        ({}, None, pyclgemm.ArgumentError, ["module is an empty state_dict"]),
    ]:
        with raises(error, *parts):
            Sequential.from_torch(given, activation, queue=queue)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_modules(queue, require, dtype):
    torch = pytest.importorskip("torch")
    require(dtype)
    nn = torch.nn
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(8, 30), nn.ReLU(), nn.Dropout(0.5), nn.Linear(30, 21), nn.GELU(),
        nn.Sequential(nn.Linear(21, 20, bias=False), nn.GELU(approximate="tanh"), nn.Identity()),
        nn.Linear(20, 16), nn.SiLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 9), nn.Sigmoid(),
        nn.Linear(9, 4),
    ).to(getattr(torch, dtype))  # fmt: skip
    x = torch.randn(11, 8, dtype=getattr(torch, dtype))
    names = ["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", None]
    linear = [one for one in module.modules() if isinstance(one, nn.Linear)]
    layers = [
        (
            one.weight.detach().numpy().T,
            None if one.bias is None else one.bias.detach().numpy(),
            name,
        )
        for one, name in zip(linear, names, strict=True)
    ]
    expected = expected_network(x.numpy(), layers)
    got = Sequential.from_torch(module, queue=queue)(x.numpy())
    assert_both(got, module.eval()(x).detach().numpy(), expected)
    state = module.state_dict()
    assert_close(Sequential.from_torch(state, names, queue=queue)(x.numpy()), expected)


def test_modules_that_occur_several_times(queue):
    torch = pytest.importorskip("torch")
    linear, relu = torch.nn.Linear(6, 6), torch.nn.ReLU()
    module = torch.nn.Sequential(linear, relu, linear, relu, linear)
    x = torch.randn(5, 6)
    layer = (linear.weight.detach().numpy().T, linear.bias.detach().numpy())
    expected = expected_network(x.numpy(), [(*layer, "relu"), (*layer, "relu"), (*layer, None)])
    got = Sequential.from_torch(module, queue=queue)(x.numpy())
    assert_both(got, module(x).detach().numpy(), expected)


def test_a_bfloat16_module_keeps_its_type(queue, traits):
    torch = pytest.importorskip("torch")
    if traits.type != "cpu":
        pytest.skip("bfloat16 is for CPUs and matrix units")
    module = torch.nn.Linear(8, 3).to(torch.bfloat16)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 8)).astype(ml_dtypes.bfloat16)
    weight, bias = (one.detach().float().numpy() for one in (module.weight, module.bias))
    layer = (weight.T.astype(x.dtype), bias.astype(x.dtype), None)
    got = Sequential.from_torch(module, queue=queue)(x)
    assert got.dtype == x.dtype
    assert_close(got, expected_network(x, [layer]))


def test_modules_that_cannot_be_read(queue):
    torch = pytest.importorskip("torch")
    nn = torch.nn
    linear, relu = nn.Linear(4, 4), nn.ReLU()

    class Other(nn.Linear):
        """A subclass may compute something else."""

    for layers, parts in [
        ([linear, relu, nn.LayerNorm(4)], ["layer 2", "LayerNorm"]),
        ([linear, nn.Sequential(relu, nn.Linear(4, 4)), nn.Conv1d(1, 1, 1)], ["layer 3", "Conv1d"]),
        ([relu, linear], ["layer 0", "ReLU", "no linear layer"]),
        ([linear, relu, nn.Tanh()], ["layer 2", "Tanh", "another activation"]),
        ([linear, Other(4, 4)], ["layer 1", "Other"]),
        ([nn.Flatten(0), linear], ["layer 0", "Flatten", "start_dim=0"]),
        ([linear, nn.Softmax(1)], ["layer 1", "Softmax"]),
    ]:
        with raises(UNSUPPORTED, *parts):
            Sequential.from_torch(nn.Sequential(*layers), queue=queue)
    with raises(pyclgemm.ArgumentError, "activation is 'relu'", "state_dict"):
        Sequential.from_torch(linear, "relu", queue=queue)
    with raises(DTYPE, "module is a str"):
        Sequential.from_torch("model.pt", queue=queue)


@pytest.mark.parametrize(("package", "reader"), [("torch", "from_torch"), ("onnx", "from_onnx")])
def test_a_missing_package_is_named_with_its_extra(package, reader):
    with (
        patch.dict(sys.modules, {package: None}),
        raises(UNSUPPORTED, package, f'pip install "pyclgemm[{package}]"'),
    ):
        getattr(Sequential, reader)("model")


# ------------------------------------------------------------------------------ ONNX


def onnx_model(nodes, dtype="float32", output="y", **constants):
    """A model of nodes in ONNX's notation, from x to the output."""
    onnx = pytest.importorskip("onnx")
    kind = {"float32": "float", "float64": "double", "float16": "float16"}[dtype]
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> '
        f"g ({kind}[N, 6] x) => ({kind}[N, M] {output}) {{ {nodes} }}"
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()
    )
    return model


def run_onnx(model, x):
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


#: Nodes from h, the result of a linear layer, to y.
SPELLED = {
    "relu": ["y = Relu(h)"],
    "sigmoid": ["y = Sigmoid(h)"],
    "tanh": ["y = Tanh(h)"],
    "silu": ["s = Sigmoid(h) y = Mul(h, s)", "s = Sigmoid(h) y = Mul(s, h)"],
    "gelu": [
        "y = Gelu(h)",
        "d = Div(h, root) e = Erf(d) p = Add(e, one) m = Mul(h, p) y = Mul(m, half)",
        "g = Mul(half, h) d = Div(h, root) e = Erf(d) p = Add(one, e) y = Mul(g, p)",
    ],
    "gelu_tanh": [
        'y = Gelu <approximate="tanh"> (h)',
        "c = Pow(h, three) k = Mul(c, small) i = Add(h, k) j = Mul(i, factor) t = Tanh(j)"
        "p = Add(t, one) m = Mul(h, p) y = Mul(m, half)",
        "s = Mul(h, h) c = Mul(s, h) k = Mul(small, c) i = Add(k, h) j = Mul(factor, i) t = Tanh(j)"
        "p = Add(t, one) g = Mul(h, half) y = Mul(g, p)",
    ],
}  # fmt: skip
NUMBERS = {
    "root": np.sqrt(2), "one": 1.0, "half": 0.5, "three": 3.0, "small": 0.044715,
    "factor": np.sqrt(2 / np.pi),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "nodes"), [(name, nodes) for name, several in SPELLED.items() for nodes in several]
)
def test_activations_however_they_are_spelled(queue, rng, name, nodes):
    x, weight, bias = draw(rng, (5, 6), (6, 4), (4,))
    numbers = {key: np.float32(value) for key, value in NUMBERS.items()}
    model = onnx_model(f"h = Gemm(x, w, b) {nodes}", w=3 * weight, b=bias, **numbers)
    expected = expected_network(x, [(3 * weight, bias, name)])
    # The nodes round one by one: constants, and at most ten results of at most four times |h|.
    before = expected_network(x, [(3 * weight, bias, None)])
    eps = float(np.finfo(np.float32).eps)
    rounded = 40 * eps * np.maximum(1, abs(before.value))
    theirs = Expected(expected.value, expected.bound + rounded)
    assert_close(Sequential.from_onnx(model, queue=queue)(x), expected)
    assert_close(run_onnx(model, x), theirs)


def test_constants_of_float16_tell_both_forms_of_gelu_apart(rng):
    (weight,) = draw(rng, (6, 4), dtype="float16")
    numbers = {key: np.float16(value) for key, value in NUMBERS.items()}
    for name in ("gelu", "gelu_tanh"):
        for nodes in SPELLED[name]:
            model = onnx_model(f"h = MatMul(x, w) {nodes}", "float16", w=weight, **numbers)
            assert [one.activation for one in importers.read_onnx(model)] == [name]


#: Nodes from x to y with w (6, 4) and b (4,), and what the layer is: factors of both.
LINEAR = [
    ("y = Gemm(x, w, b)", 1, 1),
    ("y = Gemm <transB=1> (x, t, b)", 1, 1),
    ("y = Gemm <alpha=0.5, beta=-2.0> (x, w, r)", 0.5, -2),
    ("y = Gemm(x, w)", 1, 0),
    ("y = MatMul(x, w)", 1, 0),
    ("m = MatMul(x, w) y = Add(m, b)", 1, 1),
    ("m = MatMul(x, w) y = Add(r, m)", 1, 1),
    ("f = Flatten(x) i = Identity(w) m = MatMul(f, i) d = Dropout(m) y = Identity(d)", 1, 0),
    ("c = Constant <value = float[4] {1.0, 1.0, 1.0, 1.0}> () y = Gemm <beta=0.0> (x, w, c)", 1, 0),
]


@pytest.mark.parametrize(("nodes", "of_weight", "of_bias"), LINEAR)
def test_linear_nodes(queue, rng, nodes, of_weight, of_bias):
    x, w, b = draw(rng, (5, 6), (6, 4), (4,))
    used = {"w": w, "b": b, "r": b.reshape(1, 4), "t": np.ascontiguousarray(w.T)}
    used = {key: one for key, one in used.items() if f" {key}" in nodes or f"({key}" in nodes}
    model = onnx_model(nodes, **used)
    layer = (w * np.float32(of_weight), b * np.float32(of_bias), None)
    assert_both(
        Sequential.from_onnx(model, queue=queue)(x),
        run_onnx(model, x),
        expected_network(x, [layer]),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_file_with_several_layers(queue, require, rng, tmp_path, dtype):
    require(dtype)
    onnx = pytest.importorskip("onnx")
    x, w, b, v, u = draw(rng, (5, 6), (6, 8), (8,), (8, 7), (3, 7), dtype=dtype)
    model = onnx_model(
        "h = Gemm(x, w, b) r = Relu(h) m = MatMul(r, v) t = Tanh(m) y = Gemm <transB=1> (t, u)",
        dtype, w=w, b=b, v=v, u=u,
    )  # fmt: skip
    onnx.save(model, tmp_path / "model.onnx")
    expected = expected_network(x, [(w, b, "relu"), (v, None, "tanh"), (u.T, None, None)])
    for path in (tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        got = Sequential.from_onnx(path, queue=queue)(x)
        assert_both(got, run_onnx(model, x), expected)


#: Nodes and the words of the error.
OTHERS = [
    ("h = MatMul(x, w) y = LeakyRelu(h)", "node 1 of the ONNX model is a LeakyRelu"),
    ("h = MatMul(x, w) y = Softmax(h)", "node 1 of the ONNX model is a Softmax"),
    ("h = Relu(x) y = MatMul(h, w)", "node 0 of the ONNX model is a Relu, after no linear layer"),
    ("h = MatMul(x, w) r = Relu(h) s = Relu(x) y = Add(r, s)", "node 2 .* a Relu, .* 'x'"),
    ("h = MatMul(x, w) t = Tanh(h) s = Mul(t, h) y = Identity(s)", "node 2 .* a Mul, .* none of"),
    ("h = MatMul(x, w) y = MatMul(h, h)", "node 1 .* a MatMul that is not x @ weight"),
    ("y = Gemm <transA=1> (x, w)", "node 0 .* a Gemm that is not"),
    ("y = Gemm(x, w, w)", r"node 0 .* a Gemm whose addend is of shape \(6, 4\)"),
    ("h = MatMul(x, w) y = Mul(h, v)", r"node 1 .* a Mul with a constant \(4,\)"),
    ("h = MatMul(x, w) f = Flatten <axis=0> (h) y = Relu(f)", "node 1 .* a Flatten that changes"),
    ("h = MatMul(x, w) y = Add(h, x)", "node 1 .* an? Add, .* 'x'"),
]


@pytest.mark.parametrize(("nodes", "words"), OTHERS)
def test_nodes_that_cannot_be_read(nodes, words):
    constants = {"w": np.ones((6, 4), np.float32), "v": np.arange(4, dtype=np.float32)}
    with pytest.raises(UNSUPPORTED, match=words):
        importers.read_onnx(onnx_model(nodes, **constants))


def test_what_is_no_model(tmp_path):
    onnx = pytest.importorskip("onnx")
    (tmp_path / "text.onnx").write_text("This is no model at all.")
    with raises(pyclgemm.ArgumentError, "text.onnx", "no ONNX model"):
        Sequential.from_onnx(tmp_path / "text.onnx")
    with pytest.raises(FileNotFoundError):
        Sequential.from_onnx(tmp_path / "absent.onnx")
    with raises(DTYPE, "path is a int"):
        Sequential.from_onnx(5)
    with raises(UNSUPPORTED, "0 inputs and 0 outputs"):
        Sequential.from_onnx(onnx.ModelProto())
    with raises(pyclgemm.ArgumentError, "no linear layer"):
        Sequential.from_onnx(onnx_model("y = Identity(x)"))
