"""Run networks that scikit-learn and torch made; without torch, only the first."""

import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import pyclgemm

queue = pyclgemm.default_queue()
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a few epochs are enough here
    model = MLPClassifier((64,), max_iter=10, random_state=0).fit(images[:1500], labels[:1500])
network = pyclgemm.Sequential.from_sklearn(model, queue=queue, dtype="float32")
print(network)
scores = network(images[1500:])  # one row an image, one column a digit
same = (model.classes_[scores.argmax(axis=1)] == model.predict(images[1500:])).mean()
print(f"scikit-learn: {same:.1%} of the labels are the same")
assert same > 0.99

try:
    import torch
except ImportError:
    print('torch is not installed (pip install "pyclgemm[torch]"): its network is left out')
else:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)
    )
    network = pyclgemm.Sequential.from_torch(module, queue=queue)
    with torch.no_grad():
        wanted = module(torch.from_numpy(images)).numpy()
    difference = np.abs(network(images) - wanted).max()
    print(f"torch: largest difference {difference:.1e}")
    assert difference < 1e-4
