"""Sentences on a CPU: what minilm takes of one core.

    python benchmarks/texts.py

Sentences are made of words of captions. Times are of the processor, the shortest of several.
"""

import time

import numpy as np
from measuring import report, seconds, table

from dmuh.texts import create_text_encoder

WORDS = """a man and two dogs on the beach with red umbrella sitting near old train station while people ride horses
across green field under blue sky next to parked bus"""
N_TEXTS = 1_000
N_WORDS = (2, 5, 11, 30)


def main() -> None:
    """Measure and print the table."""
    encoder = create_text_encoder("minilm", [])
    rows = []
    for n_words in N_WORDS:
        texts = [" ".join(words) for words in np.random.default_rng(n_words).choice(WORDS.split(), (N_TEXTS, n_words))]
        encoder.encode(texts[:100])
        one = seconds(lambda text=texts[0]: encoder.encode([text]), 21, time.process_time)
        many = seconds(lambda texts=texts: encoder.encode(texts), 3, time.process_time)
        rows.append(
            {
                "words of a sentence": str(n_words),
                "one sentence": f"{1000 * one:.1f} ms",
                f"of {N_TEXTS:,}": f"{len(set(texts)) / many:,.0f}/s",
            }
        )
    report("texts", table(rows))


if __name__ == "__main__":
    main()
