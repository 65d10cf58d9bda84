"""A folder of images that is opened: features, codes that are fitted to it, and its catalogue. No torch but to fit.

models.py   CodeModel: a folder's own model, made by torch and loaded without
folder.py   open_folder: takes up what was added, changed and removed since, and yields what is served
"""

from dmuh.opening.folder import Opened, open_folder
from dmuh.opening.models import CodeModel

__all__ = ["CodeModel", "Opened", "open_folder"]
