"""A folder that is opened: what was added, changed and removed since is taken up, and codes fit what it has become.

Beside the features (`dmuh.features`), this is kept in its state folder, by default .dmuh inside it:

look/    the model of the codes, and the catalogue with the files of added images (`dmuh.catalogue.StateFolder`)
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmuh.catalogue import Catalogue, StateFolder, folder_entry, folder_labels, remove_outdated, replace_codes
from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.errors import RunError, needs_torch
from dmuh.features import FeatureNetwork, FolderFeatures, folder_features, imagenet_network
from dmuh.features.network import BACKBONE
from dmuh.files import locked
from dmuh.images import FolderImage, Reading, folder_images
from dmuh.opening.models import CodeModel

log = logging.getLogger(__name__)

Fit = Callable[[Path, FolderFeatures, list[list[str]]], None]


@dataclass(frozen=True)
class Opened:
    """What is served of a folder: its catalogue, the model of its codes, and where the files are."""

    root: Path
    hasher: Hasher
    catalogue: Catalogue
    added: Path


@dataclass(frozen=True)
class _Folder:
    """A folder that is being opened."""

    root: Path
    state: Path
    images: Sequence[FolderImage]
    reading: Reading
    network: FeatureNetwork
    fit: Fit

    @property
    def look(self) -> Path:
        """Where the model of the codes is."""
        return self.state / "look"

    def features(self, wanted: Sequence[FolderImage] | None = None) -> FolderFeatures:
        """Return the features of the wanted images, or of all."""
        return folder_features(
            self.root, keep_in=self.state, reading=self.reading, network=self.network, images=self.images, wanted=wanted
        )


@contextmanager
def open_folder(
    root: Path,
    state: Path | None = None,
    reading: Reading | None = None,
    *,
    network: FeatureNetwork | None = None,
    fit: Fit | None = None,
) -> Iterator[Opened]:
    """Yield what is served of a folder, after what was added, changed and removed since was taken up.

    state    where all that is computed is kept; by default .dmuh inside the folder
    reading  how images are read; by default unreadable ones are skipped, and noted in its `bad`
    network  what computes the features, and `fit`: what writes the model of the codes; both are the default's unless
             given
    """
    state = root / ".dmuh" if state is None else state
    kept = StateFolder(state / "look")
    kept.check_apart(root)
    images = folder_images(root)
    how = reading or Reading(on_bad_image="skip")
    folder = _Folder(root, state, images, how, network or imagenet_network(), fit or _fit)

    def busy() -> None:
        raise RunError(f"another process has {root} open, by {state}")

    with locked(kept.lock, busy):
        model = CodeModel.load(folder.look) or _fitted(folder)
        with kept.open(model.hasher, of_any_model=True) as catalogue:
            model = _brought_up_to_date(folder, catalogue, model, kept.added)
            yield Opened(root, model.hasher, catalogue, kept.added)


def _brought_up_to_date(folder: _Folder, catalogue: Catalogue, model: CodeModel, added: Path) -> CodeModel:
    """Have the catalogue list the folder's images as they are, with codes of the model; return it, or a newer one."""
    new = remove_outdated(catalogue, folder.root, folder.images)
    if catalogue.about("model") != model.hasher.digest:  # fitted again by a process that was killed then
        _encode_again(folder, catalogue, model, added)
    if new:
        features = folder.features(new)
        by_path = {image.path: image for image in new}
        catalogue.add([folder_entry(by_path[path]) for path in features.paths], model.encode(features.activations))
    n_new = sum(id_ > int(catalogue.about("fitted") or 0) for id_, _ in catalogue.files().values())
    if catalogue.about("fitted") is not None and n_new > len(catalogue) / 2:
        log.info("more than half of the images are new since the codes were fitted: they are fitted again")
        model = _fitted(folder)
        _encode_again(folder, catalogue, model, added)
    elif catalogue.about("fitted") is not None:
        return model
    catalogue.note(fitted=catalogue.about("last") or "0")
    return model


def _fitted(folder: _Folder) -> CodeModel:
    """Fit codes to the folder as it is."""
    features = folder.features()
    folder.fit(folder.look, features, [folder_labels(path) for path in features.paths])
    model = CodeModel.load(folder.look)
    assert model is not None, "it was written just now"
    return model


def _encode_again(folder: _Folder, catalogue: Catalogue, model: CodeModel, added: Path) -> None:
    """Give all images of the catalogue the codes of another model."""
    ids = {path: id_ for path, (id_, _) in catalogue.files().items()}
    features = folder.features([image for image in folder.images if str(image.path) in ids])
    codes = [model.encode(features.activations).with_ids([ids[str(path)] for path in features.paths])]
    names = sorted(catalogue.added_files())
    if names:
        own = [catalogue.id_of(name, added=True) for name in names]
        codes.append(model.hasher.encode([added / name for name in names], ids=np.array(own, np.int64),
                                         on_bad_image="skip"))  # fmt: skip
    replace_codes(catalogue, Codes.concatenated(codes), model.hasher.digest)


def _fit(folder: Path, features: FolderFeatures, labels: list[list[str]]) -> None:
    """Write the model of codes by look."""
    with needs_torch("the first opening of a folder"):
        from dmuh.backbones import create_backbone
        from dmuh.trainer.folder_codes import fit_look, write_model
    log.info("codes are fitted to the %s images …", f"{len(features):,}")
    backbone = create_backbone(BACKBONE)
    backbone.load_pretrained()
    write_model(folder, fit_look(backbone, BACKBONE, features.activations, labels))
