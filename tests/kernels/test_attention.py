"""Cached attention over ragged rows against attention written out position by position."""

import torch
from torch import Tensor

from stream_tpp.kernels.attention import Visibility, cached_attention, causal_attention, visibility

B, P, N, H, D, S, C = 3, 2, 4, 2, 8, 5, 9
PREFIX = torch.tensor([5, 0, 2])
SUFFIX = torch.tensor([[3, 0], [5, 1], [2, 4]])


def tensors(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    return normal(B, P, N, H, D), normal(B, H, S, D), normal(B, H, S, D), normal(B, P, H, C, D), normal(B, P, H, C, D)


def seen_by(own: bool) -> Visibility:
    return visibility(PREFIX, SUFFIX, N, S, C, H, own)


def written_out(own: bool, null: bool) -> Tensor:
    queries, prefix_keys, prefix_values, suffix_keys, suffix_values = tensors()
    result = torch.zeros_like(queries)
    for b in range(B):
        for p in range(P):
            for i in range(N):
                seen = int(SUFFIX[b, p]) + i + (1 if own else 0)
                for h in range(H):
                    keys = torch.cat([prefix_keys[b, h, : PREFIX[b]], suffix_keys[b, p, h, :seen]])
                    values = torch.cat([prefix_values[b, h, : PREFIX[b]], suffix_values[b, p, h, :seen]])
                    weights = (keys @ queries[b, p, i, h] / D**0.5).exp()
                    total = weights.sum() + (1.0 if null else 0.0)
                    result[b, p, i, h] = (weights / total) @ values
    return result


def test_equals_softmax_over_exactly_the_visible_positions() -> None:
    torch.testing.assert_close(cached_attention(*tensors(), seen_by(True)), written_out(True, False))


def test_null_adds_one_to_the_denominator() -> None:
    torch.testing.assert_close(cached_attention(*tensors(), seen_by(True), null=True), written_out(True, True))


def test_strict_attention_leaves_out_the_position_itself() -> None:
    torch.testing.assert_close(cached_attention(*tensors(), seen_by(False), null=True), written_out(False, True))


def test_nothing_seen_attends_to_nothing_under_the_null() -> None:
    result = cached_attention(*tensors(), visibility(PREFIX * 0, SUFFIX * 0, N, S, C, H, own=False), null=True)
    assert torch.equal(result[:, :, 0], torch.zeros(B, P, H, D))


def test_huge_logits_neither_overflow_nor_vanish() -> None:
    queries, prefix_keys, prefix_values, suffix_keys, suffix_values = tensors()
    for factor in (1e4, -1e4):
        for null in (False, True):
            arguments = (queries * factor, prefix_keys, prefix_values, suffix_keys, suffix_values, seen_by(True))
            assert torch.isfinite(cached_attention(*arguments, null=null)).all()


def test_what_lies_beyond_the_lengths_changes_no_bit() -> None:
    queries, prefix_keys, prefix_values, suffix_keys, suffix_values = tensors()
    before = cached_attention(queries, prefix_keys, prefix_values, suffix_keys, suffix_values, seen_by(True))
    for b in range(B):
        prefix_keys[b, :, PREFIX[b] :] = 1e6
        prefix_values[b, :, PREFIX[b] :] = 1e6
        for p in range(P):
            suffix_keys[b, p, :, SUFFIX[b, p] + N :] = -1e6
            suffix_values[b, p, :, SUFFIX[b, p] + N :] = -1e6
    after = cached_attention(queries, prefix_keys, prefix_values, suffix_keys, suffix_values, seen_by(True))
    assert torch.equal(before, after)


def test_a_row_is_the_same_bits_beside_any_neighbours() -> None:
    first, second = tensors(0), tensors(1)
    mixed = [torch.cat([one[:1], other[1:]]) for one, other in zip(first, second, strict=True)]
    seen = seen_by(True)
    assert torch.equal(cached_attention(*first, seen)[0], cached_attention(*mixed, seen)[0])


def test_whole_sequences_give_what_the_cache_gives() -> None:
    random = torch.Generator().manual_seed(2)
    queries, keys, values = (torch.randn(B, N, H, D, generator=random) for _ in range(3))
    suffix_keys, suffix_values = (tensor.transpose(1, 2)[:, None].contiguous() for tensor in (keys, values))
    empty = torch.zeros(B, H, 1, D)
    nothing = torch.zeros(B, dtype=torch.int64)
    for null, own in ((False, True), (True, True), (True, False)):
        seen = visibility(nothing, nothing[:, None], N, 1, N, H, own)
        cached = cached_attention(queries[:, None], empty, empty, suffix_keys, suffix_values, seen, null)
        torch.testing.assert_close(causal_attention(queries, keys, values, null, own), cached[:, 0])
