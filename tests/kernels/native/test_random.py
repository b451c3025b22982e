"""The random numbers of the machine code are those of the reference, bit for bit."""

import numpy as np

from stream_tpp.kernels import random as reference
from stream_tpp.kernels.native import random


def test_the_numbers_are_the_same_to_the_last_bit() -> None:
    keys = reference.row_keys([5, -1, 2**63], 0, 3)
    for sampling_round in (0, 1, 977):
        for stream in (0, 3, 7):
            expected = reference.uniform(keys, sampling_round, stream, 6).numpy()
            for row, column in np.ndindex(3, 3):
                state = np.uint64(random.stream_state(keys.numpy().view(np.uint64)[row, column], sampling_round, stream))
                assert [random.uniform(state, index) for index in range(6)] == expected[row, column].tolist()
