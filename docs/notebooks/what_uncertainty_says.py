# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # What uncertainty says
#
# Every bit of a code has a probability: that it turns over, which means that it is not the bit that most images of its
# kind have. Here a small network learns the embedded digits, and we look at what the probability is worth. The page
# [What uncertainty says](../uncertainty.md) tells how it is found.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import dmuh

root = Path(tempfile.mkdtemp())
settings = {"dataset": "mnist5k", "bits": 24, "image_size": 16, "train": 60, "query": 50}
config = dmuh.configure(settings, {"epochs": 6, "batch_size": 32})
run = dmuh.train(config, root / "run")
digits = dmuh.load_dataset(config.data)
split = run.load_split(digits)
hasher = dmuh.Hasher.load(root / "run")
query = hasher.encode(digits.take(split.query), ids=split.query)
database = hasher.encode(digits.take(split.database), ids=split.database)
metrics = dmuh.evaluate(query, database, digits.labels[split.query], digits.labels[split.database])
print(f"MAP {metrics.map:.3f} by {metrics.ranking} ranking, of {len(query)} queries in {len(database)} images")

# %% [markdown]
# How often bits turn over was counted on validation images, which did not train; the model keeps the result. The
# uncertainty of an image as a whole is what is expected to be missing to the average precision of a search from it.
#
# ## The images

# %%
# The twelve most certain queries above, the twelve least certain below
unsure = query.image_uncertainty
order = np.argsort(unsure)
figure, axes = plt.subplots(2, 12, figsize=(9, 1.9))
for row, positions in enumerate((order[:12], order[-12:])):
    for axis, position in zip(axes[row], positions, strict=True):
        axis.imshow(digits.images[split.query[position]], cmap="gray_r")
        axis.set_title(f"{unsure[position]:.2f}", fontsize=8)
        axis.axis("off")
figure.tight_layout()

# %% [markdown]
# ## Do uncertain queries find less?
#
# Queries in five groups from the most to the least certain, and the mean average precision of each.

# %%
# Mean average precision of the queries, from the most certain fifth to the least certain
fifths = np.array_split(metrics.average_precision[order], 5)
figure, axis = plt.subplots(figsize=(6, 2.8))
axis.bar(range(1, 6), [part.mean() for part in fifths])
axis.axhline(metrics.map, color="black", linewidth=0.8, linestyle="--", label="all queries")
axis.set(xlabel="fifth of the queries, most certain first", ylabel="MAP", ylim=(0, 1))
axis.legend()
figure.tight_layout()

# %%
ranks = [np.argsort(np.argsort(values)) for values in (unsure, metrics.average_precision)]
print(f"rank correlation of uncertainty and average precision: {np.corrcoef(*ranks)[0, 1]:.2f}")

# %% [markdown]
# ## Does it help a search?
#
# The same codes, searched by Hamming distance, by soft ranking against plain codes, and with a bit of sureness beside
# each bit of the database.

# %%
labels = digits.labels[split.query], digits.labels[split.database]
for name, searched, ranking in (
    ("Hamming distance", database.plain(), "hamming"),
    ("soft ranking", database.plain(), "soft"),
    ("soft ranking, sure bits", database.stored(), "soft"),
):
    print(f"{name:25} MAP {dmuh.evaluate(query, searched, *labels, ranking=ranking).map:.3f}")

# %% [markdown]
# ## Do uncertain bits turn over?
#
# Each query is moved by one pixel and encoded again. A useful uncertainty is high for the bits that change.

# %%
# Share of the bits that change when the image moves by one pixel, by tenths of their uncertainty
moved = hasher.encode(np.roll(digits.images[split.query], 1, axis=2))
changed = (query.unpack() != moved.unpack()).ravel()
tenths = np.array_split(np.argsort(query.uncertainty.ravel()), 10)
figure, axis = plt.subplots(figsize=(6, 2.8))
axis.bar(range(1, 11), [100 * changed[part].mean() for part in tenths])
axis.set(xlabel="tenth of the bits, most certain first", ylabel="bits that change, %")
figure.tight_layout()
