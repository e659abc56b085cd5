#!/usr/bin/env python3
"""Check policy.onnx against policy.safetensors under onnxruntime.

    python3 scripts/check_onnx.py FOLDER...

Each folder holds policy.safetensors and policy.onnx, as a run does. The policy is computed a second time here, from
the description and the tensors of policy.safetensors, in double precision and without the library's code; the graph is
run by onnxruntime on the same observations. If the folder has expected.safetensors (tensors `observation` and `action`,
as the example random_policies writes them), the library's own actions are compared as well; otherwise observations are
drawn around the normaliser's range. Fails if any action differs by more than 1e-5, absolutely.

Where two alternatives are within 1e-5 of each other, which of them is the largest is decided by rounding: such rows are
counted and left out of the comparison.

Needs numpy, onnx and onnxruntime.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

TOLERANCE = 1e-5


def read_safetensors(path):
    """Tensors (float32) and metadata of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        assert entry["dtype"] == "F32", name
        tensors[name] = np.frombuffer(body[first:last], "<f4").reshape(entry["shape"])
    return tensors, metadata


def layer_norm(x, gain, shift):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gain + shift


ACTIVATIONS = {
    "identity": lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "elu": lambda y: np.where(y > 0, y, np.expm1(np.minimum(y, 0))),
    "tanh": np.tanh,
}


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Reference:
    """The policy in double precision."""

    def __init__(self, path):
        tensors, metadata = read_safetensors(path)
        self.tensors = {name: values.astype(np.float64) for name, values in tensors.items()}
        self.description = json.loads(metadata["coptidice.policy"])
        self.head = self.description["head"]

    def affine(self, name, x):
        return x @ self.tensors[f"network.{name}.weight"].T + self.tensors[f"network.{name}.bias"]

    def norm(self, name, x):
        norm = f"network.{name}.norm"
        return layer_norm(x, self.tensors[f"{norm}.weight"], self.tensors[f"{norm}.bias"])

    def outputs(self, observation):
        x = (observation - self.tensors["normalizer.mean"]) * self.tensors["normalizer.scale"]
        blocks = self.description["network"]["blocks"]
        for index, block in enumerate(blocks):
            name = f"layers.{index}"
            if block["kind"] == "residual":
                hidden = np.maximum(self.affine(f"{name}.inner", x), 0)
                x = self.norm(name, x + self.affine(f"{name}.outer", hidden))
            else:
                x = self.affine(name, x)
                x = self.norm(name, x) if block["layer_norm"] else x
                x = ACTIVATIONS[block["activation"]](x)
        return self.affine(f"layers.{len(blocks)}", x)

    def act(self, observation, acting):
        """Actions, probabilities (finitely many actions only), and which rows are not decided by rounding."""
        outputs = self.outputs(observation.astype(np.float64))
        rows = len(outputs)
        if self.head["kind"] == "categorical":
            return outputs.argmax(axis=1), softmax(outputs), decided(outputs)
        shape = (rows, 3, self.head["action_dim"], self.head["components"])
        logits, locations = outputs.reshape(shape)[:, 0], outputs.reshape(shape)[:, 1]
        if acting == "mode":
            action = np.take_along_axis(locations, logits.argmax(axis=2)[..., None], axis=2)[..., 0]
            certain = decided(logits).all(axis=1)
        else:
            action = (softmax(logits) * locations).sum(axis=2)
            certain = np.ones(rows, bool)
        return np.clip(action, self.tensors["action.low"], self.tensors["action.high"]), None, certain


def decided(values):
    """Where the largest value of the last axis leads by more than the tolerance."""
    if values.shape[-1] == 1:
        return np.ones(values.shape[:-1], bool)
    ranked = np.sort(values, axis=-1)
    return ranked[..., -1] - ranked[..., -2] > TOLERANCE


def check(folder):
    """Largest difference of the folder's files, and how many rows were left out."""
    reference = Reference(folder / "policy.safetensors")
    model = onnx.load(folder / "policy.onnx")
    onnx.checker.check_model(model, full_check=True)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])

    expected_path = folder / "expected.safetensors"
    expected = None
    if expected_path.exists():
        tensors, _ = read_safetensors(expected_path)
        observation, expected = tensors["observation"], tensors["action"]
    else:
        generator = np.random.default_rng(0)
        mean, scale = (reference.tensors[f"normalizer.{part}"] for part in ("mean", "scale"))
        observation = (mean + generator.normal(size=(257, len(mean))) / scale).astype(np.float32)

    found = session.run(None, {"observation": observation})
    action, probabilities, certain = reference.act(observation, properties["acting"])
    pairs = [(found[0], action)]
    if probabilities is not None:
        pairs.append((found[1], probabilities))
    if expected is not None:
        pairs.append((found[0], expected.reshape(found[0].shape)))
    for result, truth in pairs:
        assert result.shape == truth.shape, (result.shape, truth.shape)
    # One row at a time must give what the batch gives: the batch dimension is free.
    single = np.concatenate([session.run(None, {"observation": row[None]})[0] for row in observation[:8]])
    pairs.append((single, action[:8]))
    rows = [certain[: len(result)] for result, _ in pairs]
    differences = [np.abs(r[c] - t[c]).max(initial=0.0) for (r, t), c in zip(pairs, rows)]
    return max(differences), int((~certain).sum())


def main():
    folders = [Path(argument) for argument in sys.argv[1:]]
    if not folders:
        sys.exit(__doc__)
    worst = 0.0
    for folder in folders:
        difference, left_out = check(folder)
        worst = max(worst, difference)
        note = f", {left_out} rows decided by rounding left out" if left_out else ""
        print(f"{folder.name}: largest difference {difference:.2e}{note}")
    print(f"{len(folders)} policies, largest difference {worst:.2e}, allowed {TOLERANCE:.0e}")
    sys.exit(int(worst > TOLERANCE))


if __name__ == "__main__":
    main()
