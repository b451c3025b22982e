"""Keys and values of what a Transformer has read: a prefix shared by all paths of a history, and a suffix of each path."""

from __future__ import annotations

import torch
from torch import Tensor

from stream_tpp.kernels.attention import Visibility, cached_attention, visibility

_FIRST_CAPACITY = 16


class Cache:
    """Cache of B histories with P paths each, over all layers of one encoder.

    The prefix (per layer keys and values [B, H, S, Dh], lengths int64 [B]) is the history, computed once. The suffix (per layer
    [B, P, H, C, Dh], lengths int64 [B, P]) is what each path added since. Rows of different length share the tensors and
    never see one another; what `keep` rolls back is simply out of sight until it is overwritten.
    """

    def __init__(self, prefix: list[tuple[Tensor, Tensor]], prefix_lengths: Tensor, paths: int) -> None:
        keys = prefix[0][0]
        batch, heads, _, width = keys.shape
        self.prefix = prefix
        self.prefix_lengths = prefix_lengths
        self.suffix = [
            (
                keys.new_zeros(batch, paths, heads, _FIRST_CAPACITY, width),
                keys.new_zeros(batch, paths, heads, _FIRST_CAPACITY, width),
            )
            for _ in prefix
        ]
        self.suffix_lengths = prefix_lengths.new_zeros(batch, paths)
        self._before_block = self.suffix_lengths
        # Host-side bound of suffix_lengths, so that a round asks the device nothing.
        self._reach = 0
        self._index: tuple[Tensor, ...] = ()
        self._visible: Visibility | None = None

    @property
    def capacity(self) -> int:
        """Positions for which the suffix has room now; it grows by itself."""
        return self.suffix[0][0].shape[3]

    def append(self, new: int, own: bool = True) -> Tensor:
        """Open a block of `new` positions behind each row's suffix; returns their positions [B, P, new] in the whole sequence.

        `own` as in `visibility`. After it, `attend` is called once a layer.
        """
        self._make_room(new)
        before = self.suffix_lengths
        batch, paths = before.shape
        device = before.device
        column = before[..., None] + torch.arange(new, device=device)
        row = torch.arange(batch, device=device)[:, None, None]
        path = torch.arange(paths, device=device)[:, None]
        self._index = (row, path, column)
        _, heads, size, _ = self.prefix[0][0].shape
        self._visible = visibility(self.prefix_lengths, before, new, size, self.capacity, heads, own, self.prefix[0][0].dtype)
        self._before_block = before
        self.suffix_lengths = before + new
        self._reach += new
        return self.prefix_lengths[:, None, None] + column

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, null: bool = False) -> Tensor:
        """Write the open block's keys and values, all [B, P, new, H, Dh], and attend over everything; shape of `queries`."""
        assert self._visible is not None, "append comes first"
        row, path, column = self._index
        suffix_keys, suffix_values = self.suffix[layer]
        suffix_keys[row, path, :, column] = keys
        suffix_values[row, path, :, column] = values
        return cached_attention(queries, *self.prefix[layer], suffix_keys, suffix_values, self._visible, null)

    def keep(self, added: Tensor) -> None:
        """Of the positions that the last block appended keep the first `added` (int64 [B, P]); roll the rest back."""
        self.suffix_lengths = self._before_block + added

    def rollback(self, lengths: Tensor) -> None:
        """Go back to suffixes of `lengths` (int64 [B, P]), none longer than it is now."""
        self.suffix_lengths = lengths

    def choose(self, paths: Tensor) -> None:
        """Go on with the paths of index `paths` (int64 [B, P']) alone."""
        row = torch.arange(len(paths), device=paths.device)[:, None]
        self.suffix = [(keys[row, paths], values[row, paths]) for keys, values in self.suffix]
        self.suffix_lengths = self.suffix_lengths.gather(1, paths)
        self._before_block = self._before_block.gather(1, paths)

    def _make_room(self, new: int) -> None:
        """Grow the suffix ahead of need, so that the true lengths are read from the device only now and then."""
        if self._reach + new <= self.capacity:
            return
        self._reach = int(self.suffix_lengths.max()) if self.suffix_lengths.numel() else 0
        needed = self._reach + 4 * new
        if needed <= self.capacity:
            return
        extra = self.capacity * -(-(needed - self.capacity) // self.capacity)
        self.suffix = [(_widen(keys, extra), _widen(values, extra)) for keys, values in self.suffix]


def _widen(tensor: Tensor, extra: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(*tensor.shape[:3], extra, tensor.shape[4])], dim=3)
