"""Layers in files: what comes back, files that are broken or foreign, interrupted writing."""

import json
import zipfile
from unittest.mock import patch

import numpy as np
import pytest

import pyclgemm
from tests.support.arrays import draw, upload
from tests.support.checks import raises

pytestmark = pytest.mark.first_runtime

SUFFIXES = [".npz", ".safetensors"]


@pytest.fixture(params=SUFFIXES)
def suffix(request):
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return request.param


def same(layer, other):
    for name in ("activation", "precision"):
        assert getattr(layer, name) == getattr(other, name)
    for one, two in ((layer.weight, other.weight), (layer.bias, other.bias)):
        assert (one is None) == (two is None)
        if one is not None:
            assert one.dtype == two.dtype and one.shape == two.shape
            assert one.get().tobytes() == two.get().tobytes()


#: Element types of weight and bias, activation, precision.
LAYERS = [
    ("float32", "float32", "relu", None), ("float32", None, None, "F32_F32_F32"),
    ("float16", "float16", "gelu", None), ("float16", "float32", None, None),
    ("bfloat16", "bfloat16", "tanh", None), ("bfloat16", "float32", None, None),
    ("float64", "float64", "silu", None), ("int8", "int32", "relu", None),
    ("complex64", "complex64", None, None), ("complex128", None, None, None),
]  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_comes_back_exactly(queue, require, rng, tmp_path, suffix, case):
    dtype, of_bias, activation, precision = case
    require(dtype)
    (weight,) = draw(rng, (33, 17), dtype=dtype)
    if dtype != "int8":
        weight.flat[:4] = np.array([np.inf, -0.0, np.nan, 1e-7]).astype(dtype)
    bias = of_bias and draw(rng, (17,), dtype=of_bias)[0]
    layer = pyclgemm.DenseLayer(queue, weight, bias, activation, precision=precision)
    path = tmp_path / f"layer{suffix}"
    if (dtype, suffix) == ("complex128", ".safetensors"):
        with raises(pyclgemm.UnsupportedError, "complex128", ".npz"):
            layer.save(path)
        return
    layer.save(str(path))
    loaded = pyclgemm.DenseLayer.load(queue, path)
    same(layer, loaded)
    (x,) = draw(rng, (3, 33), dtype=dtype)
    assert loaded(x).tobytes() == layer(x).tobytes()


def test_a_network_comes_back(queue, rng, tmp_path, suffix):
    weights = draw(rng, (9, 12), (12, 5))
    (twice,) = upload(queue, rng.random(24, "float32"))
    network = pyclgemm.Sequential([
        pyclgemm.DenseLayer(queue, weights[0], twice[::2], "relu"),  # a bias with gaps
        pyclgemm.DenseLayer(queue, weights[1]),
    ])  # fmt: skip
    path = tmp_path / f"network{suffix}"
    network.save(path)
    loaded = pyclgemm.Sequential.load(queue, path)
    assert repr(loaded) == repr(network)
    x = rng.random((4, 9), "float32")
    np.testing.assert_array_equal(loaded(x), network(x))
    np.testing.assert_array_equal(loaded.layers[0].bias.get(), twice.get()[::2])


def test_others_can_read_the_arrays(queue, rng, tmp_path, suffix):
    weight, bias = draw(rng, (4, 3), (3,))
    path = tmp_path / f"layer{suffix}"
    pyclgemm.DenseLayer(queue, weight, bias).save(path)
    if suffix == ".npz":
        arrays = np.load(path)
    else:
        from safetensors.numpy import load_file

        arrays = load_file(path)
    np.testing.assert_array_equal(arrays["0.weight"], weight)
    np.testing.assert_array_equal(arrays["0.bias"], bias)


# ------------------------------------------------------------------------------ faults


GOOD = {
    "version": 1, "kind": "DenseLayer", "layers": [{"activation": "relu", "precision": None}],
    "dtypes": {"0.weight": "float32", "0.bias": "float32"},
}  # fmt: skip


def written(path, document, **arrays):
    arrays = {"0.weight": np.ones((4, 3), "float32"), "0.bias": np.ones(3, "float32")} | arrays
    arrays = {name: array for name, array in arrays.items() if array is not None}
    text = document if isinstance(document, str) else json.dumps(document)
    if path.suffix == ".npz":
        np.savez(path, pyclgemm=np.array(text), **arrays)
    else:
        from safetensors.numpy import save_file

        save_file(arrays, path, {"pyclgemm": text})
    return path


def layer_facts(**facts):
    return GOOD | {"layers": [GOOD["layers"][0] | facts]}


BAD = {
    "a newer version": (GOOD | {"version": 2}, {}, "version 2"),
    "no JSON": ("{", {}, ""),
    "no object": ([], {}, "no JSON object"),
    "a network": (GOOD | {"kind": "Sequential"}, {}, "Sequential.load"),
    "another kind": (GOOD | {"kind": "Forest"}, {}, "Forest"),
    "no layers": (GOOD | {"layers": []}, {}, "0 layers"),
    "two layers": (GOOD | {"layers": GOOD["layers"] * 2}, {}, "layer 1"),
    "layers of another type": (GOOD | {"layers": 3}, {}, "'layers'"),
    "a layer that is a number": (GOOD | {"layers": [3]}, {}, "layer 0"),
    "a missing array": (GOOD, {"0.bias": None}, "0.bias"),
    "an array more": (GOOD, {"extra": np.ones(3)}, "extra"),
    "another type": (GOOD, {"0.weight": np.ones((4, 3))}, "float64"),
    "a type that is no type": (GOOD | {"dtypes": {"0.weight": 1, "0.bias": []}}, {}, "0."),
    "an unknown activation": (layer_facts(activation="nope"), {}, "nope"),
    "an unknown precision": (layer_facts(precision=["F32"]), {}, "precision"),
    "a weight of three dimensions": (GOOD, {"0.weight": np.ones((1, 2, 3), "float32")}, "weight"),
    "a bias that does not fit": (GOOD, {"0.bias": np.ones(4, "float32")}, "bias"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_foreign_file_is_an_error_that_names_it(queue, tmp_path, suffix, name):
    document, arrays, part = BAD[name]
    path = written(tmp_path / f"layer{suffix}", document, **arrays)
    with raises(pyclgemm.FileError, str(path), "no DenseLayer", part) as caught:
        pyclgemm.DenseLayer.load(queue, path)
    assert caught.value.filename == str(path)
    same(
        pyclgemm.DenseLayer.load(queue, written(path, GOOD)),
        pyclgemm.DenseLayer(queue, np.ones((4, 3), "float32"), np.ones(3, "float32"), "relu"),
    )


def test_a_broken_file_is_an_error_that_names_it(queue, tmp_path, suffix, rng):
    path = written(tmp_path / f"layer{suffix}", GOOD)
    whole = path.read_bytes()
    contents = [b"", b"text", b"\x80\x04.", bytes(200), whole[: len(whole) // 2], whole[:-1]]
    # Archives have checksums of arrays; .safetensors has a header that must fit.
    at = whole.index(np.float32(1).tobytes()) if suffix == ".npz" else 9
    contents += [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]]
    for content in contents:
        path.write_bytes(content)
        with raises(pyclgemm.FileError, str(path)):
            pyclgemm.DenseLayer.load(queue, path)
    for place, number in ((tmp_path / f"none{suffix}", 2), (tmp_path / f"folder{suffix}", None)):
        if number is None:
            place.mkdir()
        with raises(pyclgemm.FileError, str(place)) as caught:
            pyclgemm.DenseLayer.load(queue, place)
        assert caught.value.errno == number


class Tripped:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was read')",)


def test_a_pickle_is_never_read(queue, tmp_path):
    path = tmp_path / "layer.npz"
    np.savez(path, pyclgemm=np.array(json.dumps(GOOD)), **{
        "0.weight": np.array([Tripped()], object), "0.bias": np.ones(3, "float32"),
    })  # fmt: skip
    with raises(pyclgemm.FileError, str(path), "allow_pickle"):
        pyclgemm.DenseLayer.load(queue, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("no_array", b"abc")
    with raises(pyclgemm.FileError, str(path)):
        pyclgemm.DenseLayer.load(queue, path)


@pytest.mark.parametrize("name", ["layer.pt", "layer", "layer.npz.gz", "layer.NPZ", ""])
def test_another_suffix_is_an_error(queue, tmp_path, name):
    layer = pyclgemm.DenseLayer(queue, np.ones((2, 2), "float32"))
    for call in (layer.save, lambda path: pyclgemm.Sequential.load(queue, path)):
        with raises(pyclgemm.ArgumentError, "path is", ".npz or .safetensors"):
            call(name and tmp_path / name)


def test_an_old_file_stays_if_writing_fails(queue, tmp_path, suffix):
    old, new = (pyclgemm.DenseLayer(queue, np.full((2, 2), n, "float32")) for n in (1, 2))
    path = tmp_path / f"layer{suffix}"
    old.save(path)
    full = patch("os.replace", side_effect=OSError(28, "No space left on device"))
    with full, raises(pyclgemm.FileError, str(path), "No space left"):
        new.save(path)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    same(pyclgemm.DenseLayer.load(queue, path), old)
    new.save(path)
    same(pyclgemm.DenseLayer.load(queue, path), new)


def test_a_package_that_is_missing_is_named(queue, tmp_path):
    layer = pyclgemm.DenseLayer(queue, np.ones((2, 2), "float32"))
    path = tmp_path / "layer.safetensors"
    path.write_bytes(b"")
    with patch.dict("sys.modules", {"safetensors": None, "safetensors.numpy": None}):
        for call in (layer.save, lambda path: pyclgemm.DenseLayer.load(queue, path)):
            with raises(pyclgemm.UnsupportedError, 'pip install "pyclgemm[safetensors]"'):
                call(path)
