"""The four code folders install as one namespace, `stream_tpp`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=find_packages(include=["stream_tpp", "stream_tpp.*"])
    + [f"stream_tpp.{name}" for folder in ("kernels", "operators", "topologies") for name in find_packages(include=[folder, f"{folder}.*"])]
)
