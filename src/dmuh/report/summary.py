"""The five lines at the top of a report: what is best, and what was run, how often, by which protocol and where."""

import json
from collections.abc import Callable, Iterable, Sequence

from dmuh.datasets import DATASETS
from dmuh.protocols import PROTOCOLS
from dmuh.report.benches import Part
from dmuh.report.tables import ResultTable, Row

SHOWN_BITS = 32  # of what shows one code length, or the nearest there is
_NAMED = 4  # rows at most that are named as within noise of the best
_CHANGES = ("query", "train", "database", "tuning", "label_noise")  # settings that change a protocol


def summary(parts: Sequence[Part]) -> dict[str, dict[str, str]]:
    """Return the five lines by their titles: one sentence each, but the best is told for every part, by its name."""
    rows = [row for part in parts for row in part.rows]
    if not rows:
        return {"Runs": {"": "none is done"}}
    bits = sorted({int(row["bits"]) for row in rows})
    protocol = (_by_part(parts, say) for say in (_split, _changes, _network))
    return {
        "Best": {part.name: best_of(part.tables) for part in parts},
        "Runs": {"": _runs(rows)},
        "Codes": {"": f"{_listed(bits)} bits; {_by_part(parts, _seeds)}"},
        "Protocol": {"": "; ".join(filter(None, protocol))},
        "Machine": {"": _machine(rows)},
    }


def shown_bits(bits: Iterable[int]) -> int:
    """Return the code length that is shown where only one is."""
    return min(bits, key=lambda length: abs(length - SHOWN_BITS))


def best_of(tables: Sequence[ResultTable]) -> str:
    """Say which row of the main table has the highest MAP, and whether its lead is beyond noise."""
    table = next((table for table in tables if table.name == "methods"), tables[0])
    lengths = {bits for _, bits in table.ours}
    if not lengths:
        return "no run has a result"
    bits = shown_bits(lengths)
    ranked = table.ranked(bits)
    first, *others = ranked
    text = f"{_named(first)}, {table.ours[first, bits].text} at {bits} bits"
    if not others:
        return f"{text}, the only {table.heading}"
    second = f"{_named(others[0])} ({table.ours[others[0], bits].text})"
    leaders = table.leaders(bits)
    if not leaders:
        return f"{text}, before {second}; one seed, so noise is not known"
    if leaders == [first]:
        return f"{text}: its lead is beyond noise, the next is {second}"
    tied = leaders[1:]
    more = f" and {len(tied) - _NAMED} more" if len(tied) > _NAMED else ""
    names = ", ".join(_named(row) for row in tied[:_NAMED])
    return f"{text}, but no lead beyond noise: {names}{more} could as well be first"


def _named(row: str) -> str:
    """Return the name of a row as it stands in a sentence: of several settings, those after the first in brackets."""
    first, _, others = row.partition(", ")
    return f"{first} ({others})" if others else first


def _runs(rows: Sequence[Row]) -> str:
    failed = sum(bool(row["error"]) for row in rows)
    hours = sum(float(row["train_seconds"]) for row in rows) / 3600
    text = f"{_count(len(rows), 'run')} of {_count(len({row['method'] for row in rows}), 'method')}, "
    text += f"{f'{failed:,}' if failed else 'none'} failed; {hours:.1f} hours of training"
    memory = max((float(row["peak_memory_mb"]) for row in rows), default=0.0) / 1000
    return text + (f", at most {memory:.1f} GB of memory per run" if memory else "")


def _seeds(rows: Sequence[Row]) -> str:
    seeds = sorted({int(row["seed"]) for row in rows})
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {_listed(seeds)}"


def _split(rows: Sequence[Row]) -> str:
    """Say by which protocols the images of a part were split."""

    def told(dataset: str, protocol: str) -> str:
        name = protocol or (DATASETS[dataset].protocol if dataset in DATASETS else "")
        return PROTOCOLS[name].about if name in PROTOCOLS else name

    return _either(told(row["dataset"], row["protocol"]) for row in rows)


def _changes(rows: Sequence[Row]) -> str:
    """Say which settings change the protocol."""
    settings = [json.loads(row["config"])["protocol"] for row in rows]
    return _either(", ".join(f"{key} = {given[key]}" for key in _CHANGES if given.get(key)) for given in settings)


def _network(rows: Sequence[Row]) -> str:
    """Say which backbones the runs of a part have, and what of them is frozen."""
    told = {"all": "frozen", "none": "all of it trains"}
    frozen = [told.get(row["freeze"], f"frozen up to {row['freeze']}") for row in rows]
    return _either(f"network {row['backbone']}, {how}" for row, how in zip(rows, frozen, strict=True))


def _machine(rows: Sequence[Row]) -> str:
    machines = dict.fromkeys(row["machine"] for row in rows if row.get("machine"))
    versions = dict.fromkeys(row["versions"].replace(" ", ", ").replace("=", " ") for row in rows)
    return "; ".join([*machines, *versions])


def _by_part(parts: Sequence[Part], say: Callable[[Sequence[Row]], str]) -> str:
    """Return what is said of the lines of all parts; where that differs, each with the names of its parts."""
    names: dict[str, list[str]] = {}
    for part in parts:
        names.setdefault(say(part.rows), []).append(part.name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{text} ({_listed(of)})" for text, of in names.items() if text)


def _either(texts: Iterable[str]) -> str:
    return " or ".join(filter(None, dict.fromkeys(texts)))


def _listed(values: Sequence[object]) -> str:
    return " and ".join(filter(None, (", ".join(map(str, values[:-1])), str(values[-1]))))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
