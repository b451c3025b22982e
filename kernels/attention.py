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
    """What each new position may see, to be added to the logits: 0 in sight, -inf out of sight.

    `prefix` [B * H, 1, S] and `suffix` [B * P * H, n, C]. Computed once a block and used by every layer.
    """

    prefix: Tensor
    suffix: Tensor


def visibility(
    prefix_lengths: Tensor,
    suffix_lengths: Tensor,
    new: int,
    prefix_size: int,
    suffix_size: int,
    heads: int,
    own: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Visibility:
    """Masks for a block of `new` positions, already written behind the suffix.

    `prefix_lengths` int64 [B] and `suffix_lengths` int64 [B, P] count what stood there before the block. A position sees
    the block up to itself, or with `own` false up to the position before it (AttNHP attends to strictly earlier events).
    """
    device = prefix_lengths.device
    beyond = torch.arange(prefix_size, device=device) >= prefix_lengths[:, None, None, None]
    last = suffix_lengths[..., None] + torch.arange(new, device=device) - (0 if own else 1)
    later = torch.arange(suffix_size, device=device) > last[:, :, None, :, None]

    def added(hidden: Tensor, *shape: int) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
        return mask.expand(*shape).flatten(0, -3)

    batch, paths = suffix_lengths.shape
    return Visibility(added(beyond, batch, heads, 1, prefix_size), added(later, batch, paths, heads, new, suffix_size))


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
    with value zero joins every softmax: the denominator 1 + sum exp(.) of AttNHP (Yang et al. 2022, eq. 5). Without it
    every query must see something, which a position that sees itself does.
    """
    batch, paths, new, heads, width = queries.shape
    queries = queries * width**-0.5
    shared = queries.permute(0, 3, 1, 2, 4).reshape(batch * heads, paths * new, width)
    prefix = torch.baddbmm(visible.prefix, shared, prefix_keys.flatten(0, 1).transpose(1, 2))
    own = queries.transpose(2, 3).reshape(-1, new, width)
    suffix = torch.baddbmm(visible.suffix, own, suffix_keys.flatten(0, 2).transpose(1, 2))

    # One softmax over both parts, without ever laying them side by side: only [B, P, H, n] statistics change layout.
    def by_path(statistic: Tensor) -> Tensor:
        return statistic.reshape(batch, heads, paths, new, -1).transpose(1, 2)

    top = torch.maximum(by_path(prefix.amax(-1)), suffix.amax(-1).reshape(batch, paths, heads, new, 1))
    if null:
        top = top.clamp(min=0.0)
    prefix = prefix.sub_(top.transpose(1, 2).reshape(batch * heads, paths * new, 1)).exp_()
    suffix = suffix.sub_(top.reshape(-1, new, 1)).exp_()
    total = by_path(prefix.sum(-1)) + suffix.sum(-1).reshape(batch, paths, heads, new, 1)
    if null:
        total = total + (-top).exp()
    attended = by_path(prefix @ prefix_values.flatten(0, 1))
    attended = attended + (suffix @ suffix_values.flatten(0, 2)).reshape(batch, paths, heads, new, width)
    return (attended / total).transpose(2, 3)


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
