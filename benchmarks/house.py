"""Print the measures of the house: words of the README, rooms, long functions, and on request the times of the tests.

python benchmarks/house.py            what can be read off the tree
python benchmarks/house.py --times    also `make test`, `.ci/run` in a clean clone, the first search after an install
"""

import ast
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dmuh"
LONG = 40  # lines of a function, its signature and docstring among them


def words(path: Path) -> int:
    """Count words as `wc -w` does."""
    return len(path.read_text(encoding="utf-8").split())


def rooms() -> list[str]:
    """Return the modules and packages on the top level of dmuh."""
    found = (path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
    return sorted(name for name in found if not name.startswith("_"))


def long_functions() -> list[tuple[int, str]]:
    """Return the length, file and name of every function of more than 40 lines, longest first."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONG:
                    found.append((lines, f"{path.relative_to(SOURCE)}:{node.name}"))
    return sorted(found, reverse=True)


def seconds(*command: str, cwd: Path = ROOT) -> float:
    """Return how long a command takes that succeeds."""
    began = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Print one line per measure."""
    print(f"words of the README      {words(ROOT / 'README.md'):,}")
    print(f"top-level rooms          {len(rooms())}: {', '.join(rooms())}")
    found = long_functions()
    print(f"functions over {LONG} lines  {len(found)}")
    for lines, name in found:
        print(f"  {lines:4} {name}")
    if "--times" not in sys.argv:
        return
    print(f"make test                {seconds('make', 'test'):.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
        print(f".ci/run in a clean clone {seconds('bash', '.ci/run', cwd=Path(folder)):.0f} s")
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "first_search.py")], check=True)


if __name__ == "__main__":
    main()
