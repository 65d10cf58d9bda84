"""KeptFolder: a folder of images and what is kept of it, of which catalogues are brought up to date."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dmuh.catalogue import Catalogue, folder_labels, replace_codes
from dmuh.codes import Codes
from dmuh.features import FeatureNetwork, FolderFeatures, folder_features
from dmuh.images import FolderImage, Reading
from dmuh.opening.fitting import Fit
from dmuh.opening.models import CodeModel


@dataclass(frozen=True)
class KeptFolder:
    """A folder of images, as it is now, and the folder in which all that is computed of it is kept.

    added  where the files of images are that were added to it by a service
    """

    root: Path
    state: Path
    added: Path
    images: Sequence[FolderImage]
    reading: Reading
    network: FeatureNetwork

    def features(self, wanted: Sequence[FolderImage] | None = None) -> FolderFeatures:
        """Return the features of the wanted images, or of all."""
        return folder_features(
            self.root, keep_in=self.state, reading=self.reading, network=self.network, images=self.images, wanted=wanted
        )

    def listed(self, catalogue: Catalogue) -> list[FolderImage]:
        """Return the images that a catalogue lists."""
        known = catalogue.files()
        return [image for image in self.images if str(image.path) in known]

    def fitted(self, name: str, fit: Fit, wanted: Sequence[FolderImage] | None = None) -> CodeModel:
        """Fit codes to the images as they are, and keep their model in a folder of this name."""
        features = self.features(wanted)
        fit(self.state / name, features, [folder_labels(path) for path in features.paths])
        model = CodeModel.load(self.state / name)
        assert model is not None, "it was written just now"
        return model

    def codes(self, catalogue: Catalogue, model: CodeModel, ids: set[int] | None = None) -> Codes:
        """Return the codes that a model gives to the images of a catalogue, or to those with these ids.

        They have their exact uncertainty, which that of an upload is compared with.
        """
        listed = {path: id_ for path, (id_, _) in catalogue.files().items() if ids is None or id_ in ids}
        features = self.features([image for image in self.images if str(image.path) in listed])
        codes = [model.encode(features.activations).with_ids([listed[str(path)] for path in features.paths])]
        names = {name: catalogue.id_of(name, added=True) for name in sorted(catalogue.added_files())}
        names = {name: id_ for name, id_ in names.items() if ids is None or id_ in ids}
        if names:
            own = np.array(list(names.values()), np.int64)
            codes.append(model.hasher.encode([self.added / name for name in names], ids=own, on_bad_image="skip"))
        return Codes.concatenated(codes)

    def encode_again(self, catalogue: Catalogue, model: CodeModel) -> None:
        """Give all images of a catalogue the codes of another model."""
        replace_codes(catalogue, self.codes(catalogue, model), model.hasher.digest)
