"""A model as a folder: model.json, target.safetensors, draft.safetensors. Nothing in it is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.model.precision import require_types

FORMAT = 1
_TENSORS = ("target", "draft")


def save(model: Model, folder: str | Path) -> None:
    """Write the model and name its weights: `model.version` is set.

    Each file appears whole or not at all, model.json last, so a reader never sees a half-written model without noticing.
    """
    folder = made(folder)
    blobs = {"target": _blob(model.target), "draft": _blob(model.draft)}
    described = {
        "format": FORMAT,
        "config": {"target": _target_described(model.config.target), "draft": asdict(model.config.draft)},
        "types": list(model.types),
        "scale": asdict(model.scale),
        "window": model.window,
        "sha256": {name: hashlib.sha256(blob).hexdigest() for name, blob in blobs.items()},
    }
    model.version = _version_of(described)
    for name, blob in blobs.items():
        _write(folder / f"{name}.safetensors", blob)
    document = {**described, "version": model.version, "facts": model.facts}
    _write(folder / "model.json", (json.dumps(document, indent=2) + "\n").encode())


def made(folder: str | Path) -> Path:
    """The folder of a model to be written, made if need be. Raises StreamTppError where it can't be."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StreamTppError(f"The folder {folder} cannot be made ({error.strerror}): name another.") from None
    if not os.access(folder, os.W_OK):
        raise StreamTppError(f"The folder {folder} may not be written to: name another, or change its permissions.")
    return folder


def load(folder: str | Path) -> Model:
    """Read a model, in evaluation mode, on the GPU where there is one.

    Raises StreamTppError where it is missing, damaged, of another format or of another number type.
    """
    folder = Path(folder)
    document = _description(folder)
    blobs = {name: _verified(folder, name, document["sha256"][name]) for name in _TENSORS}
    try:
        target = TargetConfig(**{**document["config"]["target"], "cycles": tuple(document["config"]["target"]["cycles"])})
        config = ModelConfig(target, DraftConfig(**document["config"]["draft"]))
        model = Model.fresh(config, tuple(document["types"]), GapScale(**document["scale"]), document["window"])
        for name, network in (("target", model.target), ("draft", model.draft)):
            tensors = safetensors.torch.load(blobs[name])
            require_types(tensors, network, str(folder / f"{name}.safetensors"))
            network.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, AssertionError, RuntimeError, safetensors.SafetensorError) as error:
        raise StreamTppError(f"The model in {folder} does not fit its own description: fit or copy it again.") from error
    _require_unchanged(folder / "model.json", document)
    model.facts, model.version = document.get("facts", {}), document["version"]
    return model.to("cuda") if torch.cuda.is_available() else model


def _target_described(config: TargetConfig) -> dict[str, Any]:
    """Without what models had no word for before there were bins: the description of a mixture, and so its version, stays."""
    unsaid = {"head": TargetConfig.head, "bins": TargetConfig.bins, "spacing": TargetConfig.spacing}
    described = asdict(config)
    return {name: value for name, value in described.items() if config.head == "binned" or unsaid.get(name) != value}


def _require_unchanged(path: Path, document: dict[str, Any]) -> None:
    """The version stands for all but the facts: a scale or a window of another hand would give another law without a word."""
    described = {name: value for name, value in document.items() if name not in ("version", "facts")}
    if document["version"] != _version_of(described) or not isinstance(document.get("facts", {}), dict):
        raise StreamTppError(f"{path} was changed since the model was written: copy the whole folder, or fit the model, again.")


def _version_of(described: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def _description(folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    try:
        document = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise StreamTppError(f"There is no model in {folder}: give a folder written by `stream-tpp fit`.") from None
    except (OSError, ValueError):
        raise StreamTppError(f"{path} cannot be read as JSON: fit the model or copy it again.") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise StreamTppError(
            f"{path} has format {found}, this stream-tpp reads format {FORMAT}: "
            "fit the model again, or install the release that wrote it."
        )
    sums = document.get("sha256")
    if not isinstance(sums, dict) or set(sums) != set(_TENSORS) or "version" not in document:
        raise StreamTppError(f"{path} lacks the checksums of the weights: fit the model or copy it again.")
    return dict(document)


def _verified(folder: Path, name: str, sha256: str) -> bytes:
    path = folder / f"{name}.safetensors"
    try:
        blob = path.read_bytes()
    except OSError:
        raise StreamTppError(f"{path} is missing: copy the whole model folder again.") from None
    if hashlib.sha256(blob).hexdigest() != sha256:
        raise StreamTppError(f"{path} is truncated or not the file that model.json describes: copy the whole folder again.")
    return blob


def _blob(module: nn.Module) -> bytes:
    return safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()})


def _write(path: Path, blob: bytes) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    try:
        partial.write_bytes(blob)
        os.replace(partial, path)
    except OSError as error:
        raise StreamTppError(f"{path} cannot be written ({error.strerror}): make room, or name another folder.") from None
