"""Point processes of known law: the ground truth for samplers, models and tests."""

from stream_tpp.processes.fit import fit_hawkes
from stream_tpp.processes.hawkes import Hawkes
from stream_tpp.processes.poisson import SinusoidalPoisson
from stream_tpp.processes.process import Process
from stream_tpp.processes.sequence import EventSequence, Window
from stream_tpp.processes.simulate import PAPER_WINDOW, Split, paper_process, simulate

__all__ = [
    "PAPER_WINDOW",
    "EventSequence",
    "Hawkes",
    "Process",
    "SinusoidalPoisson",
    "Split",
    "Window",
    "fit_hawkes",
    "paper_process",
    "simulate",
]
