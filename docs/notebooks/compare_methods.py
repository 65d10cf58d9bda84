# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Compare methods on your features
#
# Who has a matrix of features, such as the embeddings of another network, needs no images: `dmuh.Hashing` is a
# scikit-learn estimator that turns features into codes by any method. Here the features are the 64 pixels of
# scikit-learn's digits; put yours in their place.

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import dmuh

X, y = load_digits(return_X_y=True)
X_database, X_query, y_database, y_query = train_test_split(X, y, test_size=200, random_state=0, stratify=y)
X_train, y_train = X_database[:500], y_database[:500]
X_train.shape, X_query.shape, X_database.shape

# %% [markdown]
# Every method learns from the same 500 rows; the 200 queries search all others. `codes` gives packed codes with their
# uncertainty, `transform` an array of 0 and 1 for other estimators.
#
# SDH looks at the similarities to some training rows (its anchors) rather than at the features themselves. So that the
# comparison is fair, the two deep methods do the same, by `kernel`; a linear layer on raw pixels finds less.

# %%
methods = ["itq", "sdh", "csq", "dmuh"]
kernel = {"kernel": 300, "epochs": 30}  # any setting of a method, by its name
options = {"csq": kernel, "dmuh": kernel}
found = {}
for method in methods:
    for n_bits in (12, 32):
        hashing = dmuh.Hashing(method, n_bits=n_bits, **options.get(method, {})).fit(X_train, y_train)
        metrics = dmuh.evaluate(
            hashing.codes(X_query), hashing.codes(X_database), dmuh.one_hot(y_query), dmuh.one_hot(y_database)
        )
        found[method, n_bits] = metrics.map

# %%
# MAP by method and number of bits
figure, axis = plt.subplots(figsize=(7, 3.2))
for shift, n_bits in ((-0.2, 12), (0.2, 32)):
    places = [place + shift for place in range(len(methods))]
    axis.bar(places, [found[method, n_bits] for method in methods], width=0.38, label=f"{n_bits} bits")
axis.set_xticks(range(len(methods)), methods)
axis.set(ylabel="MAP", ylim=(0, 1))
axis.legend(loc="lower left")
figure.tight_layout()

# %% [markdown]
# One split, and settings of the deep methods that were tried on these very queries: a difference of a point says
# nothing. For a table that does, with several seeds and settings chosen on other images, see
# [Reproduce a table](../tutorials/reproduce-a-table.md).
#
# ## Search with the codes

# %%
hashing = dmuh.Hashing("sdh", n_bits=48).fit(X_train, y_train)
index = dmuh.HammingIndex().add(hashing.codes(X_database))
matches = index.search(hashing.codes(X_query[:5]), k=8)
for label, ids, distances in zip(y_query, matches.ids, matches.distances, strict=False):
    away = ", ".join(f"{distance:.1f}" for distance in distances)
    print(f"a {label} finds {y_database[ids].tolist()}, of which {away} bits are expected to differ")
