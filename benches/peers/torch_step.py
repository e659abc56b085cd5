"""One training step of COptiDICE in eager PyTorch, as a yardstick for the step of this project.

Two settings:
  paper  the networks of the paper's continuous-control experiments: nu and chi with hidden layers 512 (layer
         normalisation, tanh), 512, 256 (ELU); the policy with an encoder of 300 units, 1024 units, four residual blocks
         of 1024 ReLU units, and a mixture of five Gaussians per action dimension; gradient penalties on nu and chi.
  pairs  two nu and two chi with two hidden layers of 256 ReLU units, a policy of the same size, no penalty.

Both evaluate nu and chi on s, s' and s0 in one pass, and update everything with one fused Adam. Data are random.
Prints one JSON object: steps, seconds per step (median and best), peak resident memory.

usage: python torch_step.py --setting paper --obs 14 --act 1 --batch 1024 --threads 2 --seconds 10
"""

import argparse
import json
import math
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

GAMMA, ALPHA, EPSILON, LIMIT = 0.995, 0.01, 0.01, 0.1
PENALTY, BOUND = 1e-5, 5.0
COMPONENTS, MIN_SCALE = 5, 1e-4


def value_network(setting, inputs):
    if setting == "pairs":
        return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    return nn.Sequential(
        nn.Linear(inputs, 512), nn.LayerNorm(512), nn.Tanh(),
        nn.Linear(512, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, 1),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer, self.norm = nn.Linear(width, width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.outer(F.relu(self.inner(x))))


def policy_network(setting, inputs, outputs):
    if setting == "pairs":
        return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs))
    encoder = [nn.Linear(inputs, 300), nn.LayerNorm(300), nn.Tanh(), nn.Linear(300, 1024)]
    return nn.Sequential(*encoder, *(Residual(1024) for _ in range(4)), nn.Linear(1024, outputs))


def log_density(outputs, actions):
    """Log density of each action under a mixture of Gaussians per dimension: [B]."""
    size, width = actions.shape
    logits, means, raw = outputs.view(size, 3, width, COMPONENTS).unbind(1)
    scales = F.softplus(raw) + MIN_SCALE
    z = (actions.unsqueeze(-1) - means) / scales
    gaussians = -0.5 * z * z - scales.log() - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(F.log_softmax(logits, -1) + gaussians, -1).sum(-1)


def soft_chi(w):
    """The divergence's generator: that of KL below 1, half the square above."""
    low = torch.clamp(w, min=1e-10)
    return torch.where(w < 1, w * (low.log() - 1) + 1, 0.5 * (w - 1) ** 2)


def ratio(x):
    """Inverse derivative of the generator."""
    return torch.where(x < 0, torch.exp(torch.clamp(x, max=0)), torch.clamp(x, min=0) + 1)


def penalty(network, mixes):
    x = mixes.detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
    excess = F.relu(torch.linalg.vector_norm(gradient + 1e-10, dim=1) - BOUND)
    return PENALTY * (excess * excess).mean()


class Step:
    def __init__(self, setting, obs, act, batch):
        self.setting, self.batch = setting, batch
        pairs = 2 if setting == "pairs" else 1
        self.nus = nn.ModuleList(value_network(setting, obs) for _ in range(pairs))
        self.chis = nn.ModuleList(value_network(setting, obs) for _ in range(pairs))
        self.policy = policy_network(setting, obs, 3 * act * COMPONENTS)
        self.log_lambda, self.log_tau = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        networks = [*self.nus.parameters(), *self.chis.parameters(), *self.policy.parameters()]
        self.optimiser = torch.optim.Adam([*networks, self.log_lambda, self.log_tau], lr=3e-4, fused=True)
        rows = 100_000
        self.observations, self.next = torch.randn(rows, obs), torch.randn(rows, obs)
        self.actions = torch.tanh(torch.randn(rows, act))
        self.rewards, self.costs = torch.rand(rows), (torch.rand(rows) < 0.1).float()

    def losses(self):
        index, first = torch.randint(len(self.rewards), (self.batch,)), torch.randint(len(self.rewards), (self.batch,))
        s, s_next, s_first = self.observations[index], self.next[index], self.observations[first]
        reward, cost = self.rewards[index], self.costs[index]
        states = torch.cat([s, s_next, s_first])
        mix = torch.rand(self.batch, 1)
        mixes = mix * s_first + (1 - mix) * s
        lam, tau = self.log_lambda.exp().clamp(max=1e3), self.log_tau.exp() + 1e-6
        loss = 0.0
        for nu, chi in zip(self.nus, self.chis):
            here, there, start = nu(states).squeeze(-1).split(self.batch)
            advantage = reward - lam.detach() * cost + GAMMA * there - here
            w = ratio(advantage / ALPHA)
            loss = loss + (1 - GAMMA) * start.mean() - ALPHA * soft_chi(w).mean() + (w * advantage).mean()
            weight = w.detach()
            here, there, start = chi(states).squeeze(-1).split(self.batch)
            ell = (1 - GAMMA) * start + weight * (cost + GAMMA * there - here)
            bound = tau * (torch.logsumexp(ell / tau, 0) - math.log(self.batch)) + tau * EPSILON
            loss = loss + bound + lam * (LIMIT - bound.detach())
            if self.setting == "paper":
                loss = loss + penalty(nu, mixes) + penalty(chi, mixes)
        return loss - (weight * log_density(self.policy(s), self.actions[index])).mean()

    def __call__(self):
        self.optimiser.zero_grad(set_to_none=True)
        self.losses().backward()
        self.optimiser.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--setting", choices=["paper", "pairs"], default="paper")
    for name, default in [("obs", 14), ("act", 1), ("batch", 1024), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    step = Step(chosen.setting, chosen.obs, chosen.act, chosen.batch)
    for _ in range(3):
        step()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < chosen.seconds or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "version": torch.__version__,
                "steps": len(times),
                "median_seconds": statistics.median(times),
                "best_seconds": min(times),
                "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
