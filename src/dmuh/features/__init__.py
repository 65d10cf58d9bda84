"""The ImageNet features of all images below a folder, labelled or not, computed once and kept.

network.py   FeatureNetwork: what computes them, EfficientNet-Lite0 by ONNX Runtime
store.py     FeatureStore: where they are kept, in parts, so that an interruption costs seconds
folder.py    folder_features: those of a folder as it is now; only what is new or was changed is computed
"""

from dmuh.features.folder import FolderFeatures, folder_features, unit_vectors
from dmuh.features.network import BACKBONE, FeatureNetwork, imagenet_network

__all__ = ["BACKBONE", "FeatureNetwork", "FolderFeatures", "folder_features", "imagenet_network", "unit_vectors"]
