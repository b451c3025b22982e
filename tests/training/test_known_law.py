"""On a process whose law is known, training comes close to the truth."""

import numpy as np
import pytest
import torch

from stream_tpp.model.config import EncoderName, TargetConfig
from stream_tpp.model.target import Target
from stream_tpp.processes import paper_process, simulate
from stream_tpp.training.data import Crops, fit_gap_scale, mean_gap, split_simulated
from stream_tpp.training.likelihood import log_likelihood, negative_log_likelihood, train_target
from stream_tpp.training.optimise import Schedule


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["thp", "sahp", "attnhp"])
def test_a_target_comes_close_to_the_likelihood_of_the_hawkes_process_that_it_learned_from(encoder: EncoderName) -> None:
    process = paper_process("multivariate_hawkes")
    drawn = simulate(process, sequences=120, seed=0)
    split = split_simulated(drawn, process.num_types)
    scale = fit_gap_scale(split.train)
    shape = {"layers": 2, "heads": 4, "d_model": 32, "feedforward": 64, "components": 8}
    torch.manual_seed(0)
    target = Target(TargetConfig(process.num_types, encoder=encoder, time_scale=mean_gap(split.train), **shape))  # type: ignore[arg-type]
    train, validation, test = (
        Crops(part, scale, process.num_types, 128, 16) for part in (split.train, split.validation, split.test)
    )
    train_target(target, train, validation, Schedule(epochs=10, learning_rate=3e-3), seed=0)
    with torch.inference_mode():
        found = [log_likelihood(target(batch.histories.block)[0], batch) for batch in test.judged()]
    events = sum(float(one.events) for one in found)
    ours = negative_log_likelihood(target, test.judged(), scale) - sum(float(one.quiet) for one in found) / events
    truth = -sum(process.log_likelihood(one) for one in drawn.test) / events
    rates = process.mean_rates
    constant = 1 - float((rates / rates.sum()) @ np.log(rates))
    assert truth - 0.02 < ours < truth + 0.1 < constant
