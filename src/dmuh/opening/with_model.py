"""A folder that is opened with a model that was trained before: its codes, what its distances mean, and its texts.

model-…/   in the state folder, by default .dmuh: the catalogue of the model's codes, and the files of added images
           (`dmuh.catalogue.StateFolder`); its name goes on with the digest of the model, so that each has its own
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmuh.catalogue import StateFolder, remove_outdated
from dmuh.encoder import Hasher
from dmuh.encoder.adding import add_images
from dmuh.errors import ConfigError, MissingExtraError, RunError
from dmuh.features import FeatureNetwork, imagenet_network
from dmuh.files import locked
from dmuh.images import Reading, folder_images
from dmuh.opening.folder import KeptFolder
from dmuh.opening.opened import Opened

_DIGITS = 12  # of the digest, in the name of the folder


@contextmanager
def open_with_model(
    root: Path, model: Path, state: Path | None = None, reading: Reading | None = None
) -> Iterator[Opened]:
    """Yield what is served of a folder by a model, after what was added, changed and removed since was taken up.

    model    folder of a run or of an export
    state    where all that is computed is kept; by default .dmuh inside the folder
    reading  how images are read; by default unreadable ones are skipped, and noted in its `bad`
    """
    hasher = Hasher.load(model)
    if not hasher.takes_images:
        raise ConfigError(f"{model} takes feature vectors, and only images can be opened")
    state = root / ".dmuh" if state is None else state
    kept = StateFolder(state / f"model-{hasher.digest[:_DIGITS]}")
    kept.check_apart(root)
    images = folder_images(root)

    def busy() -> None:
        raise RunError(f"another process has {root} open with this model, by {state}")

    with locked(kept.lock, busy), kept.open(hasher) as catalogue:
        new = remove_outdated(catalogue, root, images)
        add_images(catalogue, root, new, hasher, reading or Reading(on_bad_image="skip"))
        network = _network()
        quiet = Reading(on_bad_image="skip")
        folder = None if network is None else KeptFolder(root, state, kept.added, images, quiet, network)
        yield Opened(root, hasher, catalogue, kept.added, None, None if folder is None else folder.features)


def _network() -> FeatureNetwork | None:
    """Return what tells near duplicates and wrong labels; None where its weights are not installed."""
    try:
        return imagenet_network()
    except MissingExtraError:
        return None
