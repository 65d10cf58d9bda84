"""A folder that is opened: what was added, changed and removed since is taken up, and codes fit what it has become.

Beside the features (`dmuh.features`), this is kept in its state folder, by default .dmuh inside it:

look/    the model of the codes by look, and the catalogue with the files of added images (`dmuh.catalogue.StateFolder`)
class/   the same by class, where the folder's folders are classes
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dmuh.catalogue import Catalogue, StateFolder, folder_entry, remove_outdated
from dmuh.encoder import Hasher
from dmuh.errors import RunError
from dmuh.features import FeatureNetwork, FolderFeatures, imagenet_network
from dmuh.files import locked
from dmuh.images import Reading, folder_images
from dmuh.opening.by_class import class_codes
from dmuh.opening.fitting import Fit, fit_by_class, fit_by_look
from dmuh.opening.folder import KeptFolder
from dmuh.opening.models import CodeModel

log = logging.getLogger(__name__)

_NAME = "look"


@dataclass(frozen=True)
class Opened:
    """What is served of a folder: its catalogue, the model of its codes, and where the files are.

    by_class  the model and the catalogue of its codes by class, where its folders are classes
    features  gives the features of its images; None where their network is not installed
    """

    root: Path
    hasher: Hasher
    catalogue: Catalogue
    added: Path
    by_class: tuple[Hasher, Catalogue] | None
    features: Callable[[], FolderFeatures] | None


@contextmanager
def open_folder(
    root: Path,
    state: Path | None = None,
    reading: Reading | None = None,
    *,
    network: FeatureNetwork | None = None,
    by_look: Fit = fit_by_look,
    by_class: Fit = fit_by_class,
) -> Iterator[Opened]:
    """Yield what is served of a folder, after what was added, changed and removed since was taken up.

    state              where all that is computed is kept; by default .dmuh inside the folder
    reading            how images are read; by default unreadable ones are skipped, and noted in its `bad`
    network            what computes the features, EfficientNet-Lite0 unless another is given
    by_look, by_class  what writes the models of the codes
    """
    state = root / ".dmuh" if state is None else state
    kept = StateFolder(state / _NAME)
    kept.check_apart(root)
    how = reading or Reading(on_bad_image="skip")
    folder = KeptFolder(root, state, kept.added, folder_images(root), how, network or imagenet_network())

    def busy() -> None:
        raise RunError(f"another process has {root} open, by {state}")

    with locked(kept.lock, busy):
        model = CodeModel.load(state / _NAME) or folder.fitted(_NAME, by_look)
        with kept.open(model.hasher, of_any_model=True) as catalogue:
            model = _brought_up_to_date(folder, catalogue, model, by_look)
            with class_codes(folder, catalogue, by_class) as classes:
                quiet = replace(folder, reading=Reading(on_bad_image="skip"))
                yield Opened(root, model.hasher, catalogue, kept.added, classes, quiet.features)


def _brought_up_to_date(folder: KeptFolder, catalogue: Catalogue, model: CodeModel, fit: Fit) -> CodeModel:
    """Have the catalogue list the folder's images as they are, with codes of the model; return it, or a newer one."""
    new = remove_outdated(catalogue, folder.root, folder.images)
    if catalogue.about("model") != model.hasher.digest:  # fitted again by a process that was killed then
        folder.encode_again(catalogue, model)
    if new:
        features = folder.features(new)
        by_path = {image.path: image for image in new}
        catalogue.add([folder_entry(by_path[path]) for path in features.paths], model.encode(features.activations))
    fitted = catalogue.about("fitted")  # the last id that there was then
    if fitted is None or sum(id_ > int(fitted) for id_, _ in catalogue.files().values()) > len(catalogue) / 2:
        if fitted is not None:
            log.info("more than half of the images are new since the codes were fitted: they are fitted again")
            model = folder.fitted(_NAME, fit)
            folder.encode_again(catalogue, model)
        catalogue.note(fitted=catalogue.about("last") or "0")
    return model
