"""The whole pipeline without the command line: train, encode, index, search, measure.

python examples/quickstart.py [EPOCHS] [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

import dmuh


def main(epochs: int = 30, folder: Path = Path("runs/quickstart")) -> None:
    """Run the pipeline on the embedded digits."""
    # 1. Settings: everything that is not named keeps its default; a wrong name or value is refused here.
    config = dmuh.configure({"dataset": "mnist5k", "method": "dmuh", "bits": 32, "epochs": epochs, "seed": 0})

    # 2. Training leaves a run folder; a run that was interrupted goes on where it stopped.
    dmuh.train(config, folder, resume=True)

    # 3. The trained network turns images (paths, arrays, Pillow images) into codes.
    hasher = dmuh.Hasher.load(folder)
    digits = dmuh.load_dataset(config.data)
    everyone = np.random.default_rng(0).permutation(len(digits))
    query, database = np.sort(everyone[:200]), np.sort(everyone[200:])
    query_codes = hasher.encode(digits.take(query), ids=query)
    database_codes = hasher.encode(digits.take(database), ids=database)
    print(query_codes, database_codes)

    # 4. An exact index: nearest codes by the number of bits that are expected to differ, given how sure each bit is.
    index = dmuh.HammingIndex().add(database_codes)
    matches = index.search(query_codes[:3], k=5)
    for asked, distances, ids in zip(query[:3], matches.distances, matches.ids, strict=True):
        found = [f"{digits.label_text(i)} at {away:.1f}" for i, away in zip(ids, distances, strict=True)]
        print(f"a {digits.label_text(asked)} finds {', '.join(found)}")

    # 5. Which images is the network unsure of? An image's uncertainty is the share of its bits that may turn over.
    unsure = query_codes.image_uncertainty
    assert unsure is not None
    least = int(unsure.argmax())
    print(f"least certain query: image {query[least]}, a {digits.label_text(query[least])}, about "
          f"{unsure[least] * hasher.n_bits:.1f} of {hasher.n_bits} bits may turn over")  # fmt: skip

    # 6. Exact figures, with named rules for ties and cut-offs. These images include those that were trained on:
    #    the honest test of a run is `dmuh evaluate`, which keeps to the split it was trained with.
    metrics = dmuh.evaluate(query_codes, database_codes, digits.labels[query], digits.labels[database])
    print(f"MAP {metrics.map:.4f}, precision@10 {metrics.precision_at[10]:.4f}")


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, Path), sys.argv[1:], strict=False)))
