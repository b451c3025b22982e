"""EasyTPP's sampler, run by benchmarks/peers.py in an environment of its own.

Its THP draws times by thinning (EventSampler) and takes the likeliest type; `predict_multi_step_since_last_event` goes on from
the end of the history. Every setting of the thinning but the number of steps is EasyTPP's default.
"""

import json
import os
import sys
import time
import warnings

import torch
from easy_tpp.config_factory.model_config import ModelConfig
from easy_tpp.model import TorchTHP as THP
from easy_tpp.model.basemodel import BaseModel


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the library prints is no answer
    told = json.loads(sys.argv[1])
    torch.set_num_threads(told["threads"])
    torch.manual_seed(0)
    with open(told["histories"]) as file:
        shared = json.load(file)
    times, types = torch.tensor(shared["times"]), torch.tensor(shared["types"])
    kinds = int(types.max()) + 1
    config = ModelConfig(
        model_id=THP.__name__,
        hidden_size=told["d_model"],
        num_layers=told["layers"],
        num_heads=told["heads"],
        num_event_types=kinds,
        num_event_types_pad=kinds + 1,
        event_pad_index=kinds,
        thinning={},
    )
    model = BaseModel.generate_model_from_config(config).eval()

    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer(
        layers=model.n_layers,
        heads=model.n_head,
        d_model=model.d_model,
        parameters=sum(p.numel() for p in model.parameters()),
        weights="random",
        settings={
            **{key: value for key, value in model.gen_config.get_yaml_config().items() if key != "num_step_gen"},
            "times": "drawn by thinning",
            "types": "the likeliest",
            "key_value_cache": False,
        },
    )
    for line in sys.stdin:
        asked = json.loads(line)
        model.gen_config.num_step_gen = asked["events"]
        some, kind = times[: asked["batch"]], types[: asked["batch"]]
        deltas = torch.diff(some, dim=1, prepend=some[:, :1])
        mask = torch.ones(some.shape, dtype=torch.bool)
        began = time.perf_counter()
        with torch.inference_mode():
            drawn = model.predict_multi_step_since_last_event(
                forward=True, time_seqs=some, time_delta_seqs=deltas, type_seqs=kind, seq_non_pad_mask=mask
            )[0]
        seconds = time.perf_counter() - began
        assert drawn.shape == (asked["batch"], asked["events"] + 1)
        answer(seconds=seconds, events=asked["batch"] * asked["events"])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
