"""A worker goes on with the model that lies in its folder, without a restart: every output names the one that made it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import orjson
import pytest
import torch

from stream_tpp.model.checkpoint import load, save
from stream_tpp.topologies.audit import audit
from stream_tpp.topologies.plug import folder_of
from stream_tpp.topologies.settings import Settings
from tests.e2e.account import records
from tests.e2e.flights import Place, inputs, send
from tests.e2e.worker import WorkerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_a_running_worker_takes_up_a_new_model_and_no_broken_one(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folder_of("flights"), folder)
    settings = dataclasses.replace(settings, forecasts=dataclasses.replace(settings.forecasts, model=str(folder), pick_up=0.1))
    sent = inputs(300, 0)
    old = load(folder).version
    with WorkerProcess(settings, tmp_path) as worker:
        await worker.ready()
        first = await send(settings.kafka, settings.topics.events, sent[:100])
        await worker.drained(within=120)
        new = changed(folder)
        await worker.counted("stream_tpp_models_taken_up_total", 1)
        second = await send(settings.kafka, settings.topics.events, sent[100:200])
        await worker.drained(within=120)
        weights = folder / "target.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        await worker.counted("stream_tpp_models_refused_total", 1)
        await worker.ready()
        third = await send(settings.kafka, settings.topics.events, sent[200:])
        await worker.drained(within=120)
        assert worker.stop() == 0, worker.log()
    for topic in (settings.topics.forecasts, settings.topics.warnings):
        made_by = dict(source_and_model(record.value) for record in await records(settings, topic))
        assert made_by == dict.fromkeys(first, old) | dict.fromkeys([*second, *third], new)
    audited = await audit(settings.kafka, settings.topics, settings.rules)
    assert audited.sound, audited.faults


def source_and_model(value: bytes) -> tuple[Place, str]:
    record = orjson.loads(value)
    return Place(record["source"]["partition"], record["source"]["offset"]), record["model"]


def changed(folder: Path) -> str:
    """Put a model of the same types and other weights into the folder; its version."""
    model = load(folder)
    with torch.no_grad():
        for weight in model.target.parameters():
            weight.mul_(1.01)
    save(model.to("cpu"), folder)
    return model.version
