"""Our rows beside the paper's, as the tables of docs/paper.md.

python benchmarks/paper_tables.py        writes them into docs/paper.md from benchmarks/results/paper.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "paper.json", ROOT / "docs" / "paper.md"
BEGIN, END = "<!-- tables of benchmarks/paper_tables.py -->", "<!-- end of tables -->"
MOST_JS = 0.002
NAMES = {"thp": "THP", "sahp": "SAHP", "attnhp": "AttNHP"}

# arXiv 2507.09252, Tables 1 and 2; autoregressive / speculative. Table 1: delta L, D_KS, speed-up.
TABLE_1 = {
    ("Poisson", "thp"): (".542/.349", ".038/.036", 2.110),
    ("Poisson", "sahp"): (".012/.204", ".033/.050", 1.290),
    ("Poisson", "attnhp"): ("1.879/1.952", ".076/.068", 2.967),
    ("Hawkes", "thp"): (".753/.276", ".044/.043", 2.113),
    ("Hawkes", "sahp"): (".884/.630", ".031/.028", 1.513),
    ("Hawkes", "attnhp"): (".220/.722", ".029/.027", 5.743),
    ("MultiHawkes", "thp"): (".022/.321", ".069/.053", 2.117),
    ("MultiHawkes", "sahp"): (".146/.070", ".055/.080", 1.277),
    ("MultiHawkes", "attnhp"): (".334/.199", ".065/.045", 4.467),
}
# Table 2: delta L, D_WS of the time and of the type, speed-up.
TABLE_2 = {
    ("Taobao", "thp"): (".446/.033", ".236/.076", ".267/.751", 1.597),
    ("Taobao", "sahp"): (".148/.746", ".328/.493", ".414/.368", 1.553),
    ("Taobao", "attnhp"): (".629/.860", ".187/.116", ".193/.206", 3.183),
    ("Taxi", "thp"): (".441/.065", ".201/.082", ".055/.655", 2.553),
    ("Taxi", "sahp"): (".563/.093", ".236/.036", ".778/.744", 3.637),
    ("Taxi", "attnhp"): (".859/.506", ".249/.331", ".094/.134", 4.310),
}

Row = dict[str, Any]


def tables(document: dict[str, Any]) -> str:
    """Markdown of all tables; datasets and encoders that were not measured are named."""
    rows = document["rows"]
    dates = sorted(row["date"] for row in rows)
    parts = [
        f"Measured {' to '.join(sorted({dates[0], dates[-1]}))} on {document['machine']}.",
        "### Exactness: speculative against autoregressive samples of one model",
        _table(
            ["data, encoder", "mode", "events", "JS gap", "JS type", "JS count", "smallest p", "accepted", "events/pass"],
            exactness(rows),
        ),
        exactness_in_words(rows),
        "### Table 1: synthetic data",
        _table(["data, encoder", "", "ΔL", "D_KS (band)", "speed-up"], _paired(rows, TABLE_1, _first, paper_first)),
        "### Table 2: real data",
        _table(["data, encoder", "", "ΔL", "D_WS time", "D_WS type", "speed-up"], _paired(rows, TABLE_2, _second, paper_second)),
        "### Next event: distance (and what chance alone gives)",
        _table(["data, encoder", "draws", "gap", "p", "type", "type, total variation", "p"], [_next_event(row) for row in rows]),
        "### What the models are worth, and what sampling costs",
        _table(
            ["data, encoder", "trained, s", "test NLL", "renewal baseline", "γ", "accepted", "events/pass", "speed-up"],
            cost(rows),
        ),
    ]
    missing = [_name(key) for key in (*TABLE_1, *TABLE_2) if key not in {_key(row) for row in rows}]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.")
    return "\n\n".join(parts)


def exactness(rows: list[Row]) -> list[list[str]]:
    """A line for each mode of each row: divergences in bits, with those of chance."""
    return [
        [
            _name(_key(row)),
            mode,
            f"{min(found['events']):,}",
            *(f"{found['js'][kind]:.5f} ({found['js_by_chance'][kind]:.5f})" if kind in found["js"] else "" for kind in _KINDS),
            f"{found['smallest_p']:.3f}",
            f"{found['acceptance']:.2f}",
            f"{found['events_per_target_pass']:.2f}",
        ]
        for row in rows
        for mode, found in row["modes"].items()
    ]


_KINDS = ("gap", "type", "count")


def exactness_in_words(rows: list[Row]) -> str:
    """The claim, counted: how many comparisons keep it."""
    found = [one for row in rows for one in row["modes"].values()]
    largest = max((one["js"][kind], one["js_by_chance"][kind], kind) for one in found for kind in one["js"])
    below = sum(max(one["js"].values()) <= MOST_JS for one in found)
    rejected = sum(not one["passed"] for one in found)
    return (
        f"Of {len(found)} comparisons, {below} have every divergence at most {MOST_JS} bits; the largest is {largest[0]:.5f} "
        f"({largest[2]}; chance alone {largest[1]:.5f}). {rejected} were rejected at the level 0.01, "
        f"where an exact sampler would see at most {len(found) / 100:.2f} on average."
    )


def cost(rows: list[Row]) -> list[list[str]]:
    """A line for each draft length of each row."""
    return [
        [
            _name(_key(row)),
            f"{row['plan']['train_seconds']:g}",
            f"{row['model']['test_nll']:.3f}",
            f"{row['model']['baselines']['log_normal_renewal']:.3f}",
            gamma,
            f"{speed['acceptance']:.2f}",
            f"{speed['events_per_target_pass']:.2f}",
            f"{speed['speedup']:.2f}",
        ]
        for row in rows
        for gamma, speed in row["speed"].items()
    ]


def _paired(
    rows: list[Row], paper: dict[Any, Any], ours: Callable[[Row], list[str]], theirs: Callable[..., list[str]]
) -> list[list[str]]:
    lines = []
    for row in rows:
        if (key := _key(row)) in paper:
            lines += [[_name(key), "ours", *ours(row)], ["", "paper", *theirs(*paper[key])]]
    return lines


def paper_first(likelihood: str, distance: str, speedup: float) -> list[str]:
    """The cells of Table 1 as printed."""
    return [likelihood, distance, f"{speedup:.2f}"]


def paper_second(likelihood: str, time: str, kind: str, speedup: float) -> list[str]:
    """The cells of Table 2 as printed."""
    return [likelihood, time, kind, f"{speedup:.2f}"]


def _first(row: Row) -> list[str]:
    both = [row["known_law"][name] for name in ("autoregressive", "speculative")]
    return [
        " / ".join(f"{abs(one['log_likelihood_difference']):.2f} ± {one['standard_error']:.2f}" for one in both),
        " / ".join(f"{one['d_ks']:.3f} ({one['band']:.3f})" for one in both),
        _best_speed(row),
    ]


def _second(row: Row) -> list[str]:
    near, likelihood = row["next_event"], row["likelihood"]
    return [
        f"{abs(likelihood['difference']):.3f} ± {likelihood['standard_error']:.3f}",
        f"{near['gap']:.4f} ({near['gap_by_chance']:.4f})",
        f"{near['type']:.4f} ({near['type_by_chance']:.4f})",
        _best_speed(row),
    ]


def _best_speed(row: Row) -> str:
    return ", ".join(f"{speed['speedup']:.2f} (γ {gamma})" for gamma, speed in row["speed"].items())


def _next_event(row: Row) -> list[str]:
    near = row["next_event"]
    return [
        _name(_key(row)),
        f"{row['plan']['draws']:,}",
        f"{near['gap']:.4g} ({near['gap_by_chance']:.4g})",
        f"{near['p_gap']:.3f}",
        f"{near['type']:.4f} ({near['type_by_chance']:.4f})",
        f"{near['type_variation']:.4f} ({near['type_variation_by_chance']:.4f})",
        f"{near['p_type']:.3f}",
    ]


def _key(row: Row) -> tuple[str, str]:
    return row["dataset"], row["encoder"]


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} {NAMES[key[1]]}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables(json.loads(RESULTS.read_text()))}\n\n{END}{after}")


if __name__ == "__main__":
    main()
