"""Sentences that a service is asked: searches by text over a million codes, beside those by id.

    python benchmarks/text_search.py [SECONDS] [N]

The load is wrk's, as in serve.py: one thread, on loopback, on the cores that the server uses too. Codes are those of
serve.py, 48 bits with one sure bit per bit, ranked softly; the 10 nearest are asked for. Every sentence is another one,
of 6 to 14 words as captions are, and passes through all-MiniLM-L6-v2 and the hash layer above it when it is asked.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from measuring import report, table
from PIL import Image
from serve import BY_ID, N_BITS, Load, fill, load, server

CONNECTIONS = (1, 4, 8, 16)
BY_TEXT = """math.randomseed(7)
local things = {{"dog", "horse", "bus", "man", "woman", "child", "boat", "bird", "cat", "bench", "truck", "plane"}}
local looks = {{"small", "red", "old", "large", "white", "happy", "wooden", "black", "young", "green", "bright", "wet"}}
local does = {{"stands", "waits", "sits", "moves", "is seen", "can be found", "rests", "looks around"}}
local places = {{"street", "beach", "field", "river", "station", "garden", "kitchen", "market", "bridge", "hill"}}
local function one(words) return words[math.random(#words)] end
request = function()
  local said = "a " .. one(looks) .. " " .. one(things) .. " " .. one(does)
  if math.random(2) == 1 then said = said .. " near the " .. one(places) end
  if math.random(2) == 1 then said = said .. " with a " .. one(looks) .. " " .. one(things) .. " beside it" end
  said = said .. " number " .. math.random(0, {last})
  return wrk.format("GET", "/api/search?k=10&text=" .. said:gsub(" ", "+"))
end
"""


def prepare(folder: Path, n: int) -> None:
    """Train a network for images and texts for a moment, and fill catalogues with codes."""
    from dmuh import configure, train

    rng = np.random.default_rng(0)
    rows = ["path,label,caption"]
    for number in range(60):
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{number % 3},a picture of the kind {number % 3} with number {number}")
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    settings = {"method": "dmuh-x", "dataset": "csv", "data": str(folder / "list.csv"), "texts": "caption"}
    settings |= {"text_encoder": "minilm", "bits": N_BITS, "epochs": 2, "image_size": 64, "query": 3, "train": 12}
    train(configure(settings), folder / "run")
    fill(folder, n)


def main(seconds: int = 60, n: int = 1_000_000) -> None:
    """Measure and print the table."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed, which makes the load: apt-get install wrk")
    loads: dict[str, dict[int, Load]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, n)
        scripts = {"a sentence": BY_TEXT.format(last=n - 1), "an image of the collection": BY_ID.format(last=n - 1)}
        with server(folder, "graded") as (pid, address, _):
            for what, text in scripts.items():
                script = folder / "load.lua"
                script.write_text(text)
                for connections in CONNECTIONS:
                    own = load(pid, address, script, seconds, connections)
                    loads.setdefault(what, {})[connections] = own
                    print(what, connections, own, file=sys.stderr, flush=True)
    rows = [
        {
            f"{n:,} graded codes of {N_BITS} bits, {seconds} s": f"search by {what}",
            **{
                f"{connections} connection{'s' * (connections > 1)}": f"{one.rate:,.0f}/s, p99 {one.p99:.0f} ms"
                for connections, one in own.items()
            },
            "memory, begin – end": "{:,.0f} – {:,.0f} MB".format(*own[CONNECTIONS[-1]].memory),
        }
        for what, own in loads.items()
    ]
    report("text_search", table(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
