"""dmuh demo."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmuh.cli.console import say, say_json
from dmuh.cli.evaluate import measure_run, say_metrics, say_soft
from dmuh.cli.options import Json
from dmuh.cli.stopping import GOES_ON, stoppable
from dmuh.cli.train import settings_of
from dmuh.errors import needs_torch

if TYPE_CHECKING:
    from dmuh.collection import Collection
    from dmuh.datasets import Dataset
    from dmuh.runs import Run
    from dmuh.trainer.evaluation import Evaluation


@stoppable(GOES_ON)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the demo.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the training images.")] = 30,
    as_json: Json = False,
) -> None:
    """Train on embedded digits, index and search them, measure, and write a page of figures.

    Example: dmuh demo, then open demo/index.html
    """
    with needs_torch("the demo"):
        from dmuh.datasets import load_dataset
        from dmuh.report.markup import refuse_foreign_page
        from dmuh.report.page import write_run_page
        from dmuh.runs import Run
        from dmuh.trainer import train as run_training

    tell = (lambda _: None) if as_json else say
    run, page = Run(out / "run"), out / "index.html"
    refuse_foreign_page(page)
    settings = settings_of(run, {"epochs": epochs}, None, "", resume=True)
    images = load_dataset(settings.data)
    tell(f"1/4  training {settings.method} with {settings.network.bits} bits on digits, {epochs} epochs …")
    run_training(settings, run.path, dataset=images, resume=True)
    tell("2/4  encoding the other digits and indexing their codes …")
    evaluation = measure_run(run, images)
    collection = _collect(run, images, evaluation, out)
    tell(f"3/4  {_search(collection, evaluation)}")
    write_run_page(run, images, evaluation.query, evaluation.database, page)
    tell(f"4/4  the page is at {page.absolute()}")
    if as_json:
        say_json({"page": str(page.absolute()), "run": str(run.path), "map": evaluation.metrics.map})
        return
    say_metrics(evaluation.metrics)
    say_soft(evaluation.soft)
    say(f"to search them in a browser: dmuh serve {run.path} --index {collection.path}")
    say(f"MAP {evaluation.metrics.map:.4f}")


def _collect(run: "Run", images: "Dataset", evaluation: "Evaluation", out: Path) -> "Collection":
    """Write the database digits as files and as an index of them."""
    from dmuh.collection import Collection
    from dmuh.datasets.folder import write_folder

    collection = Collection(out / "index")
    files = write_folder(images, evaluation.database.ids, out / "images")
    collection.write(evaluation.database, files, run.path, run.load_model().checksum)
    return collection


def _search(collection: "Collection", evaluation: "Evaluation") -> str:
    """Search the index with all queries; return a sentence about it."""
    index = collection.build_index()
    began = time.perf_counter()
    index.search(evaluation.query, 10)
    seconds = time.perf_counter() - began
    return f"{len(evaluation.query):,} queries searched {len(index):,} images for their 10 nearest in {seconds:.3f} s"
