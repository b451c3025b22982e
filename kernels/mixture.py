"""Mixtures of normals in y, the standardised log gap (so log-normal mixtures of the gap itself), in float64.

On CUDA the kernels of `stream_tpp.kernels.triton.mixture` do the work; what is written here is what they must equal.

Shapes: y [...]; log_weights (normalised), locs, log_scales [..., M]; uniform numbers u [..., 2].
Source: Shchur et al. 2020 (arXiv 1909.12127), equation 2; TPP-SD (arXiv 2507.09252), section 4.1.
"""

import math

import torch
from torch import Tensor

from stream_tpp.kernels.dispatch import triton_on_cuda

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_BELOW_ONE = 1.0 - 2.0**-52
_LOWEST_LOG = -700.0  # exp(-700) is still a normal float64


@triton_on_cuda("mixture")
def log_density(y: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """Log density of y, [...]."""
    z = (y[..., None] - locs) * torch.exp(-log_scales)
    return torch.logsumexp(log_weights - log_scales - 0.5 * z * z, -1) - _HALF_LOG_2PI


@triton_on_cuda("mixture")
def log_survival(y: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """Log of the chance of a value above y, [...]; y may be -inf."""
    z = (y[..., None] - locs) * torch.exp(-log_scales)
    return torch.logsumexp(log_weights + torch.special.log_ndtr(-z), -1)


@triton_on_cuda("mixture")
def sample(u: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """One draw of y per place, [...]: the component from u[..., 0], the value in it from u[..., 1]."""
    component = categorical(u[..., 0], log_weights)
    z: Tensor = torch.special.ndtri(u[..., 1])
    return _pick(locs, component) + torch.exp(_pick(log_scales, component)) * z


@triton_on_cuda("mixture")
def sample_above(y_low: Tensor, u: Tensor, log_weights: Tensor, locs: Tensor, log_scales: Tensor) -> Tensor:
    """One draw of y given y > y_low ([...], -inf where nothing is known), however small the chance of that was."""
    z_low = (y_low[..., None] - locs) * torch.exp(-log_scales)
    log_tails = torch.special.log_ndtr(-z_low)
    log_posterior = torch.log_softmax(log_weights + log_tails, -1)
    component = categorical(u[..., 0], log_posterior)
    z = -log_ndtri(_pick(log_tails, component) + torch.log(u[..., 1]))
    y = _pick(locs, component) + torch.exp(_pick(log_scales, component)) * z
    return torch.maximum(y, y_low)


def categorical(u: Tensor, log_probabilities: Tensor) -> Tensor:
    """Index drawn by inversion, int64 [...], from u [...] and normalised log probabilities [..., K].

    An index of probability zero is never drawn, whatever the rounding of the cumulative sum.
    """
    cumulative = torch.exp(log_probabilities).cumsum(-1)
    scaled = u[..., None] * (cumulative[..., -1:] * _BELOW_ONE)
    return (cumulative <= scaled).sum(-1).clamp_(max=log_probabilities.shape[-1] - 1)


def log_ndtri(log_p: Tensor) -> Tensor:
    """The z whose standard normal log CDF is log_p, also where exp(log_p) would underflow."""
    z: Tensor = torch.special.ndtri(torch.exp(log_p.clamp(min=_LOWEST_LOG)))
    far = log_p < _LOWEST_LOG
    if not bool(far.any()):
        return z
    tail = -torch.sqrt(-2.0 * log_p.clamp(max=_LOWEST_LOG))
    for _ in range(4):  # Newton; the slope of log Phi at z is phi(z) / Phi(z)
        log_cdf = torch.special.log_ndtr(tail)
        slope = torch.exp(-0.5 * tail * tail - _HALF_LOG_2PI - log_cdf)
        tail = tail - (log_cdf - log_p) / slope
    return torch.where(far, tail, z)


def _pick(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(-1, index[..., None])[..., 0]
