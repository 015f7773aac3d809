"""Read the linear layers of models of scikit-learn, torch and ONNX: arrays of NumPy, no device.

Each reader returns layers that are equal to the model's, or raises and names the first part of the
model that is no such layer.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DtypeError, UnsupportedError, shown, wrong_type
from ..problem.problem import ActivationName

#: Of the layers of a state_dict: one name between all, or a name for each.
Activations: TypeAlias = ActivationName | Sequence[ActivationName | None] | None


@dataclass(frozen=True, eq=False)
class Linear:
    """``activation(x @ weight + bias)``, on the host."""

    weight: NDArray[Any]  # (in, out)
    bias: NDArray[Any] | None  # (out,)
    activation: ActivationName | None = None


class _Stack(list[Linear]):
    """The layers read so far."""

    def activate(self, activation: ActivationName, what: str) -> None:
        """Apply an activation to the last layer; `what` describes the part of the model."""
        if not self or self[-1].activation is not None:
            before = "another activation" if self else "no linear layer"
            raise UnsupportedError(f"{what}, after {before}; it may follow a linear layer only")
        self[-1] = replace(self[-1], activation=activation)


def optional(package: str, argument: str, verb: str = "read") -> Any:
    """Import the package that reads or writes an argument, of an extra of the same name."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UnsupportedError(
            f"{argument} is {verb} by {package}, which cannot be imported ({error}): pip install "
            f'"pyclgemm[{package.partition(".")[0]}]"'
        ) from error


# ------------------------------------------------------------------------------ scikit-learn

_SKLEARN: dict[str, ActivationName | None] = {
    "identity": None, "relu": "relu", "tanh": "tanh", "logistic": "sigmoid",
}  # fmt: skip


def read_sklearn(model: Any) -> list[Linear]:
    """The layers of a fitted scikit-learn model; a softmax at its end is left out."""
    what = type(model).__name__
    if hasattr(model, "coefs_") and hasattr(model, "out_activation_"):
        names = [model.activation] * (len(model.coefs_) - 1) + [model.out_activation_]
        known = _SKLEARN | {"softmax": None}
        for number, name in enumerate(names):
            if name not in known:
                raise UnsupportedError(
                    f"layer {number} of the {what} has the activation {shown(name)}; "
                    f"{', '.join(_SKLEARN)} can be read"
                )
        parts = zip(model.coefs_, model.intercepts_, names, strict=True)
        return [Linear(weight, bias, known[name]) for weight, bias, name in parts]
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        return [_linear_model(model, what)]
    wanted = "a fitted MLPClassifier, MLPRegressor or linear model (with coef_ and intercept_)"
    raise wrong_type("model", model, wanted)


def _linear_model(model: Any, what: str) -> Linear:
    """A linear model, if on random rows its scores are what its coefficients say."""
    coef = np.atleast_2d(model.coef_)
    if coef.dtype.kind != "f":
        raise DtypeError(f"coef_ of the {what} is {coef.dtype}; an array of real numbers is wanted")
    bias = np.empty(len(coef), coef.dtype)
    bias[...] = model.intercept_
    rows = np.random.default_rng(0).standard_normal((8, coef.shape[1])).astype(coef.dtype)
    scores = rows @ coef.T + bias
    name = "decision_function" if hasattr(model, "decision_function") else "predict"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the rows have no names of features
        own = np.asarray(getattr(model, name)(rows))
    # Both sides round each product and each sum, in orders of their own; ten times that bound.
    eps = 10 * (len(coef.T) + 10) * np.finfo(coef.dtype).eps
    bound = eps * (np.abs(rows) @ np.abs(coef.T) + np.abs(bias))
    is_score = own.dtype.kind == "f" and own.size == scores.size
    if not is_score or not (np.abs(own.reshape(scores.shape) - scores) <= bound).all():
        raise UnsupportedError(f"{name} of the {what} is not x @ coef_.T + intercept_")
    return Linear(coef.T, bias)


# ------------------------------------------------------------------------------ torch


def read_torch(module: Any, activation: Activations) -> list[Linear]:
    """The layers of a module in eval mode, or of a state_dict with these activations."""
    if isinstance(module, Mapping):
        return _state_dict(module, activation)
    torch = optional("torch", "module")
    if not isinstance(module, torch.nn.Module):
        wanted = "a torch.nn.Sequential, a torch.nn.Linear or a state_dict"
        raise wrong_type("module", module, wanted)
    if activation is not None:
        raise ArgumentError(
            f"activation is {shown(activation)}, which is for a state_dict; the module has its own"
        )
    nn = torch.nn
    names: dict[Any, ActivationName] = {
        nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh",
    }  # fmt: skip
    stack = _Stack()
    for number, layer in enumerate(_flat(module, nn.Sequential)):
        # By the very type: a subclass may compute something else.
        kind, what = type(layer), f"layer {number} of the module is a {type(layer).__name__}"
        if kind is nn.Linear:
            bias = None if layer.bias is None else _tensor(layer.bias)
            stack.append(Linear(_tensor(layer.weight).T, bias))
        elif kind in names:
            stack.activate(names[kind], what)
        elif kind is nn.GELU:
            stack.activate("gelu_tanh" if layer.approximate == "tanh" else "gelu", what)
        elif kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            pass  # the network takes rows that are flat already
        elif kind not in (nn.Identity, nn.Dropout, nn.AlphaDropout):
            wanted = "Linear, ReLU, GELU, SiLU, Sigmoid, Tanh, Dropout, Identity and Flatten"
            raise UnsupportedError(f"{what} ({layer}); {wanted} can be read")
    return stack


def _flat(module: Any, container: Any) -> Iterator[Any]:
    """The layers of nested containers, in order."""
    if type(module) is not container:
        yield module
        return
    for child in module:  # `children` would leave out repetitions
        yield from _flat(child, container)


def _tensor(tensor: Any) -> NDArray[Any]:
    """A tensor, or an array, as an array of NumPy."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":  # which torch does not hand over
            return np.asarray(tensor.float().numpy().astype(ml_dtypes.bfloat16))
        tensor = tensor.numpy()
    return np.asarray(tensor)


def _state_dict(state: Mapping[Any, Any], activation: Any) -> list[Linear]:
    if not state:
        raise ArgumentError("module is an empty state_dict; at least one weight is wanted")
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for key, value in state.items():
        prefix, _, name = str(key).rpartition(".")
        groups.setdefault(prefix, {})[name] = _tensor(value)
    stack = []
    for number, (prefix, arrays) in enumerate(groups.items()):
        weight, bias = arrays.get("weight"), arrays.get("bias")
        if weight is None or weight.ndim != 2 or arrays.keys() - {"weight", "bias"}:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise UnsupportedError(
                f"module is a state_dict whose layer {number}, {prefix!r}, has {shapes}; a weight "
                "(out, in) and at most a bias are wanted"
            )
        stack.append(Linear(weight.T, bias))
    if isinstance(activation, str):
        activation = [activation] * (len(stack) - 1) + [None]
    if activation is None and len(stack) < 2:
        activation = [None] * len(stack)
    if not isinstance(activation, Sequence) or len(activation) != len(stack):
        raise ArgumentError(
            f"activation is {shown(activation)}, and a state_dict does not tell it: the name of "
            "that between layers is wanted, or a sequence with a name or None for each of "
            f"{len(stack)} layers"
        )
    return [replace(layer, activation=name) for layer, name in zip(stack, activation, strict=True)]


# ------------------------------------------------------------------------------ ONNX


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_erf: Callable[..., Any] = np.vectorize(math.erf, otypes=[float])


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


#: Where functions are compared: their values at these points tell activations apart.
_POINTS = np.linspace(-12.0, 12.0, 241)


@functools.cache
def _known_values() -> dict[ActivationName | None, NDArray[Any]]:
    """The values of each activation, and of none, at `_POINTS`."""
    return {
        None: _POINTS,
        "relu": np.maximum(_POINTS, 0),
        "gelu": _gelu(_POINTS),
        "gelu_tanh": _gelu_tanh(_POINTS),
        "silu": _POINTS * _sigmoid(_POINTS),
        "sigmoid": _sigmoid(_POINTS),
        "tanh": np.tanh(_POINTS),
    }


#: Exporters spell activations as several of these operators.
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Erf": _erf,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
}


def read_onnx(path: Any) -> list[Linear]:
    """The layers of an ONNX model: a file, or a loaded ``ModelProto``."""
    onnx = optional("onnx", "path")
    if isinstance(path, onnx.ModelProto):
        return _OnnxReader(onnx, path.graph).layers()
    if not isinstance(path, (str, os.PathLike)) and not hasattr(path, "read"):
        raise wrong_type("path", path, "a path, a file or an onnx.ModelProto")
    no_model = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model = onnx.load(path)
    except no_model as error:
        raise ArgumentError(
            f"path is {shown(path, 200)}, which holds no ONNX model: {error}"
        ) from error
    return _OnnxReader(onnx, model.graph).layers()


class _Result(NamedTuple):
    """A result of elementwise nodes, as a function of what the last linear layer gives."""

    values: NDArray[Any]  # at `_POINTS`
    what: str  # the node


class _OnnxReader:
    """Walks the nodes of a graph, and follows what becomes of the result of each linear layer."""

    def __init__(self, onnx: Any, graph: Any) -> None:
        self._onnx = onnx
        self._graph = graph
        self._stack = _Stack()
        self._constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
        inputs = [one.name for one in graph.input if one.name not in self._constants]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise UnsupportedError(
                f"the ONNX model has {len(inputs)} inputs and {len(graph.output)} outputs; one of "
                "each is wanted"
            )
        #: The results that the next node may take, by name.
        self._results = {inputs[0]: _Result(_POINTS, "the input of the ONNX model")}

    def layers(self) -> list[Linear]:
        """Read the graph."""
        for number, node in enumerate(self._graph.node):
            what = f"node {number} of the ONNX model is a {node.op_type}"
            options = {
                one.name: self._onnx.helper.get_attribute_value(one) for one in node.attribute
            }
            kind = node.op_type if node.domain in ("", "ai.onnx") else None
            if kind == "Constant" and "value" in options:
                self._constants[node.output[0]] = self._onnx.numpy_helper.to_array(options["value"])
            elif kind in ("MatMul", "Gemm"):
                self._linear(node, options, what)
            elif kind in ("Identity", "Dropout", "Flatten"):
                self._nothing(node, options, what)
            elif kind in (*_ELEMENTWISE, "Gelu"):
                self._elementwise(node, options, what)
            else:
                raise UnsupportedError(f"{what}; Gemm, MatMul, Add and activations can be read")
        self._finish(self._graph.output[0].name, "the output of the ONNX model")
        return self._stack

    def _result(self, name: str, what: str) -> _Result:
        """An operand that is a result of the last layer."""
        if name not in self._results:
            raise UnsupportedError(
                f"{what}, and its operand {name!r} is no result of the layer before it; a chain of "
                "layers is wanted"
            )
        return self._results[name]

    def _finish(self, name: str, what: str) -> None:
        """Give the last layer the activation whose result has this name and is used by `what`."""
        result = self._result(name, what)
        scale = np.maximum(1, np.abs(_POINTS))
        errors = {
            activation: np.max(np.abs(result.values - values) / scale)
            for activation, values in _known_values().items()
        }
        found = min(errors, key=lambda activation: errors[activation])
        # Constants of float16 are off by as much; the two forms of GELU by four times that.
        if not errors[found] < 1e-4:
            names = ", ".join(filter(None, errors))
            raise UnsupportedError(
                f"{result.what}, which ends an activation that is none of {names}"
            )
        if found is not None:
            self._stack.activate(found, result.what)

    def _linear(self, node: Any, options: Mapping[str, Any], what: str) -> None:
        self._finish(node.input[0], what)
        weight = self._constants.get(node.input[1])
        if weight is None or weight.ndim != 2 or options.get("transA"):
            raise UnsupportedError(f"{what} that is not x @ weight with a constant weight")
        weight = weight.T if options.get("transB") else weight
        if (alpha := options.get("alpha", 1.0)) != 1:
            weight = weight * weight.dtype.type(alpha)
        self._stack.append(Linear(weight, None))
        self._results = {node.output[0]: _Result(_POINTS, what)}
        if len(node.input) > 2 and node.input[2]:
            self._add_bias(self._constants.get(node.input[2]), options.get("beta", 1.0), what)

    def _add_bias(self, array: NDArray[Any] | None, factor: float, what: str) -> None:
        layer = self._stack[-1]
        columns = layer.weight.shape[1]
        is_row = array is not None and array.shape[-1:] == (columns,) == (array.size,)
        if array is None or not (is_row or array.size == 1):
            got = "no constant" if array is None else f"of shape {array.shape}"
            raise UnsupportedError(
                f"{what} whose addend is {got}; a constant ({columns},) is wanted"
            )
        bias = np.broadcast_to(array.reshape(-1), (columns,))
        if factor != 1:
            bias = bias * bias.dtype.type(factor)
        self._stack[-1] = replace(layer, bias=bias)

    def _nothing(self, node: Any, options: Mapping[str, Any], what: str) -> None:
        """A node that leaves rows as they are."""
        training = node.input[2] if len(node.input) > 2 else ""
        if options.get("axis", 1) != 1 or (training and self._constants.get(training, True)):
            raise UnsupportedError(f"{what} that changes its operand")
        if node.input[0] in self._constants:
            self._constants[node.output[0]] = self._constants[node.input[0]]
        else:
            self._results[node.output[0]] = self._result(node.input[0], what)

    def _elementwise(self, node: Any, options: Mapping[str, Any], what: str) -> None:
        constants = [name for name in node.input if name in self._constants]
        results = {
            name: self._result(name, what).values for name in node.input if name not in constants
        }
        if (
            node.op_type == "Add"
            and self._stack
            and self._stack[-1].bias is None
            and len(constants) == 1
            and all(values is _POINTS for values in results.values())
        ):
            self._add_bias(self._constants[constants[0]], 1.0, what)
            self._results = {node.output[0]: _Result(_POINTS, what)}
            return
        for name in constants:
            if (array := self._constants[name]).size != 1:
                raise UnsupportedError(f"{what} with a constant {array.shape}; a number is wanted")
            results[name] = array.astype(float).reshape(())
        function: Callable[..., Any] = _ELEMENTWISE.get(node.op_type, _gelu)
        if options.get("approximate") == b"tanh":
            function = _gelu_tanh
        with np.errstate(all="ignore"):
            values = function(*(results[name] for name in node.input))
        self._results[node.output[0]] = _Result(values, what)
