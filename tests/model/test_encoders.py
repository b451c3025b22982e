"""Every encoder, whole or piece by piece, sees the past, the whole past and nothing but the past."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.block import Block
from stream_tpp.kernels.law import MixtureLaw
from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoder import Encoder
from stream_tpp.model.histories import Histories
from stream_tpp.model.target import Target

TYPES, PATHS, DAY = 5, 3, 86_400.0
CONFIGS = [
    TargetConfig(TYPES, encoder="thp", layers=3, d_model=32, feedforward=64, components=4, cycles=(DAY,)),
    TargetConfig(TYPES, encoder="thp", layers=2, d_model=32, feedforward=64, components=4, time_encoding="time2vec"),
    TargetConfig(TYPES, encoder="sahp", layers=3, d_model=32, feedforward=64, components=4),
    TargetConfig(TYPES, encoder="attnhp", layers=3, d_model=32, feedforward=64, components=4, cycles=(DAY,)),
    TargetConfig(TYPES, encoder="attnhp", layers=2, d_model=32, feedforward=64, components=4, time_encoding="time2vec"),
]
every_encoder = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.encoder}-{c.time_encoding}")


def target(config: TargetConfig) -> Target:
    torch.manual_seed(0)
    return Target(config).eval()


def sequences(lengths: list[int], seed: int = 0, size: int | None = None) -> Histories:
    random = torch.Generator().manual_seed(seed)
    shape = len(lengths), size or max(lengths)
    y = torch.randn(shape, generator=random, dtype=torch.float64)
    y[:, 0] = 0
    types = torch.randint(0, TYPES, shape, generator=random)
    types[:, 0] = TYPES
    times = 1.7e9 + y.mul(0.7).exp().cumsum(-1)
    for row, length in enumerate(lengths):
        types[row, length:] = TYPES
    return Histories(Block(y, types, times, times[:, :1].expand_as(times)), torch.tensor(lengths))


def parameters(law: MixtureLaw) -> Tensor:
    return torch.cat([law.log_weights, law.locs, law.log_scales, law.log_types], -1)


@every_encoder
def test_layers_computed_again_on_the_way_back_give_equal_gradients(
    config: TargetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout included; without gradients nothing is computed twice."""
    block = sequences([30, 40, 17]).block
    runs, gradients, through = [], [], Encoder._through
    monkeypatch.setattr(Encoder, "_through", lambda *arguments: runs.append(1) or through(*arguments))  # type: ignore[func-returns-value]
    for recompute in (False, True):
        model = target(replace(config, dropout=0.2)).train()
        model.encoder.recompute = recompute
        torch.manual_seed(1)
        law, _ = model(block)
        gradients.append(torch.autograd.grad(law.log_prob_gap(block.y).sum(), [*model.encoder.parameters()], allow_unused=True))
        model.eval()
        with torch.no_grad():
            model(block)
    assert len(runs) == config.layers * (1 + 1 + 2 + 1)
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one, other)


def paths_of(block: Block, start: int, new: int) -> Block:
    """The `new` events from `start` on, the same on each path: [B, P, n]."""
    return block.map(lambda t: t[:, None, start : start + new].expand(-1, PATHS, -1))


@every_encoder
@torch.inference_mode()
def test_prefill_and_extend_give_the_law_of_the_whole_sequence(config: TargetConfig) -> None:
    model, sizes = target(config), [9, 14, 2]
    whole = sequences([size + 6 for size in sizes])
    law, hidden = model(whole.block)
    prefix = Histories(whole.block, torch.tensor(sizes))
    cache, last = model.prefill(prefix, PATHS)
    for row, size in enumerate(sizes):
        torch.testing.assert_close(last[row], hidden[row, size - 2].expand(PATHS, -1), atol=1e-5, rtol=1e-4)
    done = torch.tensor(sizes) - 1
    for new in (1, 4, 2):
        index = done[:, None] + torch.arange(new)
        block = whole.block.map(lambda t, index=index: t.gather(1, index)[:, None].expand(-1, PATHS, -1))  # type: ignore[misc]
        extended, _ = model.extend(cache, block)
        expected = parameters(law).gather(1, index[..., None].expand(-1, -1, parameters(law).shape[-1]))
        torch.testing.assert_close(parameters(extended)[:, 1], expected, atol=1e-5, rtol=1e-4)
        done = done + new


@every_encoder
@torch.inference_mode()
def test_rolled_back_events_leave_no_trace(config: TargetConfig) -> None:
    model, whole = target(config), sequences([20, 20])
    history = Histories(whole.block, torch.tensor([7, 3]))
    straight, rolled = model.prefill(history, PATHS)[0], model.prefill(history, PATHS)[0]
    kept = torch.tensor([[1, 4, 2], [3, 1, 4]])
    other = sequences([20, 20], seed=9)
    model.extend(rolled, paths_of(whole.block, 7, 4))
    rolled.keep(kept)
    model.extend(rolled, paths_of(other.block, 3, 5))
    rolled.keep(torch.zeros_like(kept))
    after_rollback, _ = model.extend(rolled, paths_of(whole.block, 12, 2))
    for row in range(2):
        for path in range(PATHS):
            cache, _ = model.prefill(history, PATHS)
            model.extend(cache, paths_of(whole.block, 7, int(kept[row, path])))
            expected, _ = model.extend(cache, paths_of(whole.block, 12, 2))
            torch.testing.assert_close(
                parameters(after_rollback)[row, path], parameters(expected)[row, path], atol=1e-5, rtol=1e-4
            )
    assert straight.suffix_lengths.sum() == 0


@every_encoder
@torch.inference_mode()
def test_the_future_changes_nothing(config: TargetConfig) -> None:
    model, whole, other = target(config), sequences([12]), sequences([12], seed=1)
    mixed = Block(
        *(
            torch.cat([getattr(whole.block, name)[:, :7], getattr(other.block, name)[:, 7:]], 1)
            for name in ("y", "types", "times")
        ),
        whole.block.origin,
    )
    assert torch.equal(parameters(model(whole.block)[0])[:, :7], parameters(model(mixed)[0])[:, :7])


@every_encoder
@torch.inference_mode()
def test_every_past_event_counts_the_newest_and_type_zero_included(config: TargetConfig) -> None:
    model, whole = target(config), sequences([10])
    for place in range(1, 10):
        types = whole.block.types.clone()
        types[0, place] = 1 if types[0, place] == 0 else 0
        changed = Block(whole.block.y, types, whole.block.times, whole.block.origin)
        difference = parameters(model(whole.block)[0])[0, -1] - parameters(model(changed)[0])[0, -1]
        assert difference.abs().max() > 1e-6


@every_encoder
@torch.inference_mode()
def test_rows_of_other_lengths_change_no_bit(config: TargetConfig) -> None:
    model = target(config)
    first, second = sequences([6, 11, 3], size=12), sequences([6, 5, 12], seed=4, size=12)
    mixed = Histories(
        Block(
            *(
                torch.cat([getattr(first.block, name)[:1], getattr(second.block, name)[1:]])
                for name in ("y", "types", "times", "origin")
            )
        ),
        torch.tensor([6, 5, 12]),
    )
    laws = []
    for histories in (first, mixed):
        cache, _ = model.prefill(histories, PATHS)
        model.extend(cache, paths_of(histories.block, 2, 4))
        cache.keep(
            torch.tensor([[2], [1], [4]]).expand(3, PATHS)
            if histories is first
            else torch.tensor([[2], [4], [0]]).expand(3, PATHS)
        )
        law, _ = model.extend(cache, paths_of(histories.block, 3, 2))
        laws.append(parameters(law)[0])
    assert torch.equal(*laws)


@torch.inference_mode()
def test_chosen_paths_go_on_as_if_alone() -> None:
    model, whole = target(CONFIGS[0]), sequences([20, 20])
    history = Histories(whole.block, torch.tensor([7, 3]))
    cache, _ = model.prefill(history, PATHS)
    kept = torch.tensor([[1, 4, 2], [3, 1, 4]])
    model.extend(cache, paths_of(whole.block, 7, 4))
    cache.keep(kept)
    chosen = torch.tensor([[2, 0], [1, 2]])
    alone, _ = model.prefill(history, PATHS)
    model.extend(alone, paths_of(whole.block, 7, 4))
    alone.keep(kept)
    everything, _ = model.extend(alone, paths_of(whole.block, 12, 3))
    cache.choose(chosen)
    some, _ = model.extend(cache, paths_of(whole.block, 12, 3).map(lambda t: t[:, :2]))
    for row in range(2):
        expected = parameters(everything)[row, chosen[row]]
        torch.testing.assert_close(parameters(some)[row], expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_a_suffix_longer_than_its_first_room_is_kept_whole() -> None:
    model, whole = target(CONFIGS[0]), sequences([120])
    law, _ = model(whole.block)
    cache, _ = model.prefill(Histories(whole.block, torch.tensor([3])), 1)
    done = 2
    while done + 9 <= 120:
        extended, _ = model.extend(cache, whole.block.map(lambda t, done=done: t[:, None, done : done + 9]))  # type: ignore[misc]
        kept = 1 + done % 9
        cache.keep(torch.tensor([[kept]]))
        torch.testing.assert_close(parameters(extended)[0, 0], parameters(law)[0, done : done + 9], atol=1e-4, rtol=1e-3)
        done += kept
    assert cache.capacity >= int(cache.suffix_lengths.max()) > 100


@torch.inference_mode()
def test_an_empty_history_is_a_history() -> None:
    model, whole = target(CONFIGS[0]), sequences([8])
    law, _ = model(whole.block)
    cache, last = model.prefill(Histories(whole.block.map(lambda t: t[:, :1]), torch.tensor([1])), PATHS)
    assert torch.equal(last, torch.zeros_like(last))
    extended, _ = model.extend(cache, paths_of(whole.block, 0, 8))
    torch.testing.assert_close(parameters(extended)[0, 0], parameters(law)[0], atol=1e-5, rtol=1e-4)


def test_the_target_of_the_paper_can_be_built() -> None:
    for encoder in ("thp", "sahp", "attnhp"):
        model = target(TargetConfig(1, encoder=encoder, layers=20, heads=8, d_model=64, components=64))  # type: ignore[arg-type]
        law, _ = model(sequences([4]).block.map(lambda t: t.clamp(max=1) if t.dtype == torch.int64 else t))
        assert law.log_weights.shape == (1, 4, 64)
        assert torch.isfinite(parameters(law)).all()


def test_gaps_of_a_nanosecond_and_of_thirty_years_give_finite_laws() -> None:
    for config in CONFIGS:
        gaps = torch.tensor([[0.0, 1e-9, 1e9, 1e-9, 1e9]], dtype=torch.float64)
        times = 1.7e9 + gaps.cumsum(-1)
        block = Block(gaps.clamp(min=1e-9).log(), torch.tensor([[5, 0, 1, 0, 1]]), times, times[:, :1].expand_as(times))
        assert torch.isfinite(parameters(target(config)(block)[0])).all()


def test_a_shape_that_cannot_work_is_refused_in_one_sentence() -> None:
    for wrong in (
        {"heads": 5},
        {"encoder": "rnn"},
        {"layers": 0},
        {"encoder": "sahp", "time_encoding": "time2vec"},
        {"time_scale": 0.0},
    ):
        with pytest.raises(StreamTppError):
            TargetConfig(TYPES, **wrong)  # type: ignore[arg-type]
