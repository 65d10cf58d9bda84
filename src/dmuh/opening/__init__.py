"""A folder of images that is opened: features, codes that are fitted to it, and its catalogue. No torch but to fit.

opened.py    open_folder: takes up what was added, changed and removed since, and yields what is served
folder.py    KeptFolder: the images, their features, and codes of them
models.py    CodeModel: a folder's own model, made by torch and loaded without
fitting.py   what makes such models
by_class.py  a second set of codes, trained on the folder's classes
"""

from dmuh.opening.models import CodeModel
from dmuh.opening.opened import Opened, open_folder

__all__ = ["CodeModel", "Opened", "open_folder"]
