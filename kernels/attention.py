"""Attention of new events over a history shared by many simulated paths.

Every path of one history attends to the same prefix, so the prefix is stored once and met by the queries of all paths in one
batched product; what a path generated itself lies in its own suffix. Both parts have a length per row: nothing beyond a length
is ever seen, so neighbours in a batch cannot change a row.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Visibility(NamedTuple):
    """What each new position may not see; computed once a block and used by every layer.

    `prefix` bool [B, 1, 1, S] and `suffix` bool [B, P, 1, n, C] are True where a column is out of sight.
    """

    prefix: Tensor
    suffix: Tensor


def visibility(
    prefix_lengths: Tensor, suffix_lengths: Tensor, new: int, prefix_size: int, suffix_size: int, own: bool = True
) -> Visibility:
    """Masks for a block of `new` positions, already written behind the suffix.

    `prefix_lengths` int64 [B] and `suffix_lengths` int64 [B, P] count what stood there before the block. A position sees
    the block up to itself, or with `own` false up to the position before it (AttNHP attends to strictly earlier events).
    """
    device = prefix_lengths.device
    prefix = torch.arange(prefix_size, device=device) >= prefix_lengths[:, None, None, None]
    last = suffix_lengths[..., None] + torch.arange(new, device=device) - (0 if own else 1)
    suffix = torch.arange(suffix_size, device=device) > last[:, :, None, :, None]
    return Visibility(prefix, suffix)


def cached_attention(
    queries: Tensor,
    prefix_keys: Tensor,
    prefix_values: Tensor,
    suffix_keys: Tensor,
    suffix_values: Tensor,
    visible: Visibility,
    null: bool = False,
) -> Tensor:
    """Scaled dot-product attention of `queries` [B, P, n, H, Dh]; returns the same shape.

    Prefix keys and values are [B, H, S, Dh] with S >= 1, suffix ones [B, P, H, C, Dh] with C >= n. With `null` a logit 0
    with value zero joins every softmax: the denominator 1 + sum exp(.) of AttNHP (Yang et al. 2022). Without it
    every query must see something, which a position that sees itself does.
    """
    batch, paths, new, heads, width = queries.shape
    queries = queries * width**-0.5
    shared = queries.permute(0, 3, 1, 2, 4).reshape(batch, heads, paths * new, width)
    prefix_scores = (shared @ prefix_keys.transpose(-1, -2)).masked_fill(visible.prefix, -torch.inf)
    suffix_scores = queries.transpose(2, 3) @ suffix_keys.transpose(-1, -2)
    suffix_scores = suffix_scores.masked_fill(visible.suffix, -torch.inf)

    # One softmax over both parts, without ever laying them side by side: only [B, P, H, n] statistics change layout.
    def by_path(statistic: Tensor) -> Tensor:
        return statistic.reshape(batch, heads, paths, new, *statistic.shape[3:]).transpose(1, 2)

    top = torch.maximum(by_path(prefix_scores.amax(-1)), suffix_scores.amax(-1))
    if null:
        top = top.clamp(min=0.0)
    prefix_weights = (prefix_scores - top.transpose(1, 2).reshape(batch, heads, paths * new, 1)).exp()
    suffix_weights = (suffix_scores - top[..., None]).exp()
    total = by_path(prefix_weights.sum(-1)) + suffix_weights.sum(-1)
    if null:
        total = total + (-top).exp()
    attended = by_path(prefix_weights @ prefix_values) + suffix_weights @ suffix_values
    return (attended / total[..., None]).transpose(2, 3)


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor, null: bool = False, own: bool = True) -> Tensor:
    """The same attention over a whole sequence at once: all arguments and the result are [B, S, H, Dh].

    Rows are padded on the right, so causality alone keeps padding out of sight and no lengths are needed.
    """
    queries, keys, values = (tensor.transpose(1, 2) for tensor in (queries, keys, values))
    if own and not null:
        return scaled_dot_product_attention(queries, keys, values, is_causal=True).transpose(1, 2)
    # The null joins as a key of zeros: its logit is 0 whatever the query.
    size = queries.shape[2]
    seen = torch.ones(size, size, dtype=torch.bool, device=queries.device).tril(0 if own else -1)
    if null:
        seen = torch.cat([seen.new_ones(size, 1), seen], dim=1)
        nothing = keys.new_zeros(keys.shape[0], keys.shape[1], 1, keys.shape[3])
        keys, values = torch.cat([nothing, keys], dim=2), torch.cat([nothing, values], dim=2)
    return scaled_dot_product_attention(queries, keys, values, attn_mask=seen).transpose(1, 2)
