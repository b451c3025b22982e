"""Compile the Triton kernels for sm_80 and sm_90, no GPU needed, and record what each takes of one.

python benchmarks/kernel_resources.py        writes benchmarks/results/kernel_resources.json
"""

import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from stream_tpp.kernels.triton.resources import launches, resources

RESULTS = Path(__file__).parent / "results" / "kernel_resources.json"
SIZES = {"small": (16, 16), "paper": (64, 32)}
CAPABILITIES = (80, 90)


def main() -> None:
    rows = [
        {
            "kernel": name,
            "components": components,
            "types": types,
            "sm": capability,
            "warps": launch.warps,
            **resources(launch, capability)._asdict(),
        }
        for components, types in SIZES.values()
        for name, launch in launches(components, types).items()
        for capability in CAPABILITIES
    ]
    facts = {"date": datetime.now(UTC).date().isoformat(), "torch": version("torch"), "triton": version("triton")}
    RESULTS.write_text(json.dumps({**facts, "kernels": rows}, indent=1) + "\n")
    table = Table(*rows[0], title=f"{facts['date']}, Triton {facts['triton']}")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
