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
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * gain + shift


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

    def affine(self, owner, name, x):
        name = f"{owner}network.{name}"
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, owner, name, x):
        norm = f"{owner}network.{name}.norm"
        return layer_norm(x, self.tensors[f"{norm}.weight"], self.tensors[f"{norm}.bias"])

    def forward(self, x, owner, blocks):
        for index, block in enumerate(blocks):
            name = f"layers.{index}"
            if block["kind"] == "residual":
                hidden = np.maximum(self.affine(owner, f"{name}.inner", x), 0)
                x = self.norm(owner, name, x + self.affine(owner, f"{name}.outer", hidden))
            else:
                x = self.affine(owner, name, x)
                x = self.norm(owner, name, x) if block["layer_norm"] else x
                x = ACTIVATIONS[block["activation"]](x)
        return self.affine(owner, f"layers.{len(blocks)}", x)

    def worth(self, x):
        """Reward less priced costs, [..., alternatives], by the selector's critic."""
        values = self.forward(x, "selector.", self.description["selector"]["network"]["blocks"])
        values = values.reshape(*values.shape[:-1], -1, 1 + self.description["selector"]["costs"])
        return values[..., 0] - values[..., 1:] @ self.tensors["selector.prices"]

    def select(self, normalized, logits, locations, scales):
        """The candidate of the largest worth, and where rounding does not decide on it."""
        quantiles, normals = np.moveaxis(self.tensors["selector.draws"], 2, 0)
        cumulative = softmax(logits).cumsum(axis=-1)[:, None]
        exceeds = cumulative > quantiles[None, :, :, None]
        component = exceeds.argmax(axis=-1)[..., None]
        pick = lambda values: np.take_along_axis(
            np.broadcast_to(values[:, None], exceeds.shape), component, axis=-1
        )[..., 0]
        candidates = pick(locations) + pick(scales) * normals
        candidates = np.clip(candidates, *self.bounds_of_head())
        mapped = (candidates - self.tensors["selector.action.mean"]) * self.tensors["selector.action.scale"]
        repeated = np.repeat(normalized[:, None], len(normals), axis=1)
        worth = self.worth(np.concatenate([repeated, mapped], axis=2))[..., 0]
        action = np.take_along_axis(candidates, worth.argmax(axis=1)[:, None, None], axis=1)[:, 0]
        # Candidates at a bound may be the same action: of those it does not matter which is the largest.
        rivals = worth > worth.max(axis=1, keepdims=True) - TOLERANCE
        others = (np.abs(candidates - action[:, None]) > TOLERANCE).any(axis=2)
        edges = (np.abs(cumulative - quantiles[None, :, :, None]) <= TOLERANCE).any(axis=(1, 2, 3))
        return action, ~(rivals & others).any(axis=1) & ~edges

    def act(self, observation, acting):
        """Actions, probabilities (finitely many actions only), and which rows are not decided by rounding."""
        normalized = observation.astype(np.float64) - self.tensors["normalizer.mean"]
        normalized *= self.tensors["normalizer.scale"]
        outputs = self.forward(normalized, "", self.description["network"]["blocks"])
        rows = len(outputs)
        if self.head["kind"] == "categorical" and acting == "select":
            below = outputs - outputs.max(axis=1, keepdims=True)
            below -= np.log(self.description["selector"]["candidates"]["threshold"])
            worth = np.where(below >= 0, self.worth(normalized), -np.inf)
            certain = decided(worth) & (np.abs(below) > TOLERANCE).all(axis=1)
            return worth.argmax(axis=1), softmax(outputs), certain
        if self.head["kind"] == "categorical":
            return outputs.argmax(axis=1), softmax(outputs), decided(outputs)
        shape = (rows, 3, self.head["action_dim"], self.head["components"])
        logits, locations, raw_scales = np.moveaxis(outputs.reshape(shape), 1, 0)
        if acting == "select":
            scales = np.logaddexp(0, raw_scales) + self.head["min_scale"]
            action, certain = self.select(normalized, logits, locations, scales)
            return self.leave(action), None, certain
        if acting == "mode":
            action = np.take_along_axis(locations, logits.argmax(axis=2)[..., None], axis=2)[..., 0]
            certain = decided(logits).all(axis=1)
        else:
            action = (softmax(logits) * locations).sum(axis=2)
            certain = np.ones(rows, bool)
        return self.leave(action), None, certain

    def unit(self):
        """What an action of the head is outside: middle + half u."""
        return self.tensors.get("action.middle", 0.0), self.tensors.get("action.half", 1.0)

    def bounds_of_head(self):
        middle, half = self.unit()
        return [(self.tensors[bound] - middle) / half for bound in ("action.low", "action.high")]

    def leave(self, action):
        middle, half = self.unit()
        return np.clip(middle + half * action, self.tensors["action.low"], self.tensors["action.high"])


def decided(values):
    """Where the largest value of the last axis leads by more than the tolerance."""
    if values.shape[-1] == 1:
        return np.ones(values.shape[:-1], bool)
    ranked = np.sort(values, axis=-1)
    with np.errstate(invalid="ignore"):  # two that are both ruled out
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
    # Of actions in units of their own, in these.
    half = reference.unit()[1]
    differences = [np.abs((r[c] - t[c]) / half).max(initial=0.0) for (r, t), c in zip(pairs, rows)]
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
