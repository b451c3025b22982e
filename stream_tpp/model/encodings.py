"""How time enters a network: as a place on a learned or fixed set of waves, and as the phase of known cycles."""

import math

import torch
from torch import Tensor, nn

from stream_tpp.model.config import TimeEncoding

LATEST = 1e15


class Sinusoidal(nn.Module):
    """z(t) of Zuo et al. 2020 (arXiv 2002.09291): waves with periods from 2 pi to 2 pi 10^4. [...] -> [..., width]."""

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", wave_rates(width), persistent=False)

    def forward(self, time: Tensor) -> Tensor:
        angle = time[..., None] * self.rates
        return torch.cat([angle.sin(), angle.cos()], -1)


class Time2Vec(nn.Module):
    """Kazemi et al. 2019 (arXiv 1907.05321): one linear feature and learned sines. [...] -> [..., width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rates = torch.cat([torch.full((1,), 1e-4), wave_rates(2 * (width - 1))])
        self.rates = nn.Parameter(rates)
        self.shifts = nn.Parameter(torch.cat([torch.zeros(1), torch.rand(width - 1) * 2 * math.pi]))

    def forward(self, time: Tensor) -> Tensor:
        angle = time[..., None] * self.rates + self.shifts
        return torch.cat([angle[..., :1], angle[..., 1:].sin()], -1)


def time_encoding(name: TimeEncoding, width: int) -> nn.Module:
    """The encoding of elapsed time of this name, [...] -> [..., width]."""
    encodings: dict[TimeEncoding, type[nn.Module]] = {"sinusoidal": Sinusoidal, "time2vec": Time2Vec}
    return encodings[name](width)


class ShiftedPosition(nn.Module):
    """Time-shifted positional encoding of SAHP (Zhang et al. 2020, arXiv 1907.07561).

    The wave at place i is moved by w t: time [...] and place [...] -> [..., width].
    """

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rates", wave_rates(width), persistent=False)
        self.shift = nn.Linear(1, width // 2, bias=False)

    def forward(self, time: Tensor, place: Tensor) -> Tensor:
        angle = place[..., None] * self.rates + self.shift(time[..., None])
        return torch.cat([angle.sin(), angle.cos()], -1)


def wave_rates(width: int) -> Tensor:
    """Angular rates 10000^(-2i / width), i < width / 2, float32."""
    return 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)


def phases(times: Tensor, cycles: Tensor) -> Tensor:
    """Sine and cosine of where in each cycle absolute times fall: seconds, float64 [...] and [C] -> float32 [..., 2C].

    The angle is reduced in float64: a float32 epoch time is off by minutes. Infinite times count as 1e15.
    """
    angle = (torch.remainder(times[..., None].clamp(max=LATEST), cycles) * (2 * math.pi / cycles)).to(torch.float32)
    return torch.cat([angle.sin(), angle.cos()], -1)
