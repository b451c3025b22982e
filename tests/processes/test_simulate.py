import numpy as np
import pytest

from stream_tpp.processes import Hawkes, SinusoidalPoisson, paper_process, simulate


def test_the_papers_processes_have_the_papers_parameters() -> None:
    assert paper_process("poisson") == SinusoidalPoisson(level=5.0, period=100.0, depth=1.0)
    hawkes, multivariate = paper_process("hawkes"), paper_process("multivariate_hawkes")
    assert isinstance(hawkes, Hawkes)
    assert isinstance(multivariate, Hawkes)
    assert hawkes.branching_ratio == pytest.approx(0.5)
    assert multivariate.branching_ratio == pytest.approx(0.5 + np.sqrt(0.25 * 0.05))


def test_a_simulation_is_split_80_10_10_and_repeats_with_its_seed() -> None:
    process = paper_process("multivariate_hawkes")
    split, again, other = (simulate(process, sequences=50, seed=seed) for seed in (3, 3, 4))
    assert [len(part) for part in (split.train, split.validation, split.test)] == [40, 5, 5]
    np.testing.assert_array_equal(split.test[-1].times, again.test[-1].times)
    np.testing.assert_array_equal(split.test[-1].types, again.test[-1].types)
    assert not np.array_equal(split.test[-1].times, other.test[-1].times)
