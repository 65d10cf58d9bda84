# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # First search
#
# From a folder of photographs to the nearest ones, in Python. The photographs are parts of ten that may be shown
# (`examples/photographs.py` writes them); put your own folder in their place, one folder per class.

# %%
import sys
import tempfile
from pathlib import Path

import dmuh

sys.path.insert(0, "../../examples")
from photographs import write_parts

root = Path(tempfile.mkdtemp())
write_parts(root / "photos", parts=8)
write_parts(root / "new", parts=1, seed=1)
sorted(folder.name for folder in (root / "photos").iterdir())

# %% [markdown]
# ## Train
#
# `configure` takes the same names as the command line and refuses a wrong one at once. A frozen EfficientNet-Lite0
# computes features of every image, once; on top of it a layer learns that gives 48 bits. Everything that belongs to the
# training is in the run folder afterwards.

# %%
config = dmuh.configure({"dataset": "folder", "data": str(root / "photos"), "bits": 48, "epochs": 3})
run = dmuh.train(config, root / "run")
sorted(file.name for file in run.path.iterdir())

# %% [markdown]
# ## Encode and index
#
# The trained network gives images their codes: 48 bits each, packed into 6 bytes, with the probability that each turns
# over.

# %%
hasher = dmuh.Hasher.load(root / "run")
images = dmuh.load_dataset(config.data).images
codes = hasher.encode(images)
index = dmuh.HammingIndex().add(codes)
print(codes, "in", codes.bits.nbytes, "bytes")

# %% [markdown]
# ## Search
#
# The queries are parts that the network has never seen.

# %%
queries = sorted((root / "new").glob("*/*.jpg"))[3:8]
matches = index.search(hasher.encode(queries), k=5)
dmuh.show_matches(matches, images, queries)

# %% [markdown]
# Distances are the number of bits that are expected to differ, given how sure each is. The index is exact: `matches`
# are the five nearest of all codes. It can be saved as one file, and opens without being read whole.

# %%
index.save(root / "photos.safetensors")
again = dmuh.HammingIndex.load(root / "photos.safetensors")
(again.search(hasher.encode(queries), k=5).ids == matches.ids).all()
