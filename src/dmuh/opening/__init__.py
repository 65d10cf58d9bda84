"""A folder of images that is opened: features, codes that are fitted to it, and its catalogue. No torch but to fit.

opened.py      open_folder: takes up what was added, changed and removed since, and yields what is served
folder.py      KeptFolder: the images, their features, and codes of them
models.py      CodeModel: a folder's own model, made by torch and loaded without
fitting.py     what makes such models
by_class.py    a second set of codes, trained on the folder's classes
with_model.py  open_with_model: the same by a model that was trained before
"""

from dmuh.opening.models import CodeModel
from dmuh.opening.opened import Opened, open_folder
from dmuh.opening.with_model import open_with_model

__all__ = ["CodeModel", "Opened", "open_folder", "open_with_model"]
