"""HoTPP's generate_sequences, run by benchmarks/peers.py in an environment of its own.

Three ways: "rmtpp": a causal Transformer, gaps of RMTPP's law drawn by HoTPP's thinning, types drawn. "attnhp": its AttNHP on
cached states, gaps and types drawn by thinning. "mae": the Transformer again, gaps as point forecasts and the likeliest types, so
nothing is drawn at all: the fastest that its autoregression can be. Thinning has the settings of HoTPP's own experiments.
"""

import json
import os
import sys
import time
import warnings
from functools import partial

import torch

MOST_GAP = 12.0
THINNING = {"max_steps": 100, "max_delta": MOST_GAP, "bound_samples": 100}
SAYS = {
    "rmtpp": {"times": "drawn by thinning", "types": "drawn", "key_value_cache": False, **THINNING},
    "attnhp": {"times": "drawn by thinning", "types": "drawn", "key_value_cache": "hidden states", **THINNING},
    "mae": {"times": "point forecasts, not drawn", "types": "the likeliest", "key_value_cache": False},
}


def module(told: dict, kinds: int, positions: int) -> torch.nn.Module:
    from hotpp.losses import CrossEntropyLoss, NextItemLoss, NHPLoss, TimeMAELoss, TimeRMTPPLoss
    from hotpp.modules import NextItemModule
    from hotpp.nn import AttNHPTransformer, Embedder, Encoder, Head, SimpleTransformer, TransformerEncoder

    embedder = Embedder(embeddings={"labels": {"in": kinds, "out": 32}}, numeric_values={"timestamps": "identity"})
    if told["way"] == "attnhp":
        attnhp = partial(
            AttNHPTransformer,
            hidden_size=told["d_model"],
            n_heads=told["heads"],
            n_layers=told["layers"],
            dim_feedforward=told["feedforward"],
            dim_value=told["d_model"] // told["heads"],
            pos_m=0.1,
            pos_M=100,
        )
        encoder = TransformerEncoder(embedder=embedder, transformer_partial=attnhp, max_time_delta=MOST_GAP)
        loss = NHPLoss(num_classes=kinds, thinning_params=THINNING, prediction="sample")
    else:
        transformer = partial(
            SimpleTransformer,
            n_positions=positions,
            n_embd=told["d_model"],
            n_layer=told["layers"],
            n_head=told["heads"],
            n_inner=told["feedforward"],
            causal=True,
        )
        encoder = Encoder(embedder=embedder, model_partial=transformer, max_time_delta=MOST_GAP)
        drawn = told["way"] == "rmtpp"
        gaps = TimeRMTPPLoss(thinning_params=THINNING) if drawn else TimeMAELoss()
        parts = {"timestamps": gaps, "labels": CrossEntropyLoss(num_classes=kinds)}
        loss = NextItemLoss(parts, prediction="sample" if drawn else "mode")
    head = partial(Head, hidden_dims=[told["d_model"]], use_batch_norm=told["way"] != "attnhp")
    return NextItemModule(seq_encoder=encoder, loss=loss, head_partial=head).eval()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the library prints is no answer
    from hotpp.data import PaddedBatch

    told = json.loads(sys.argv[1])
    torch.set_num_threads(told["threads"])
    torch.manual_seed(0)
    with open(told["histories"]) as file:
        shared = json.load(file)
    times, types = torch.tensor(shared["times"]), torch.tensor(shared["types"])
    length = times.shape[1]
    model = module(told, int(types.max()) + 1, length + told["most_events"] + 2)

    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer(
        layers=told["layers"],
        heads=told["heads"],
        d_model=told["d_model"],
        parameters=sum(p.numel() for p in model.parameters()),
        weights="random",
        settings={"feedforward": told["feedforward"], **SAYS[told["way"]]},
    )
    for line in sys.stdin:
        asked = json.loads(line)
        rows = asked["batch"]
        lengths = torch.full((rows,), length)
        batch = PaddedBatch({"timestamps": times[:rows], "labels": types[:rows]}, lengths)
        indices = PaddedBatch(torch.full((rows, 1), length - 1), torch.ones(rows, dtype=torch.long))
        began = time.perf_counter()
        with torch.inference_mode():
            sequences = model.generate_sequences(batch, indices, n_steps=asked["events"])
        seconds = time.perf_counter() - began
        assert sequences.payload["timestamps"].shape == (rows, 1, asked["events"])
        answer(seconds=seconds, events=rows * asked["events"])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
