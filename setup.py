"""The four code folders install as one namespace, `stream_tpp`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

MAPPED = ("kernels", "operators", "topologies")

setup(
    packages=[
        *find_packages(include=["stream_tpp", "stream_tpp.*"]),
        *(f"stream_tpp.{package}" for folder in MAPPED for package in find_packages(include=[folder, f"{folder}.*"])),
    ]
)
