"""Options in the address of a Milvus."""

import pytest

from dmuh.errors import ConfigError
from dmuh.index.milvus_options import MilvusOptions


def test_options_stand_in_the_address_and_come_before_others():
    address = "milvus:https://host:19530/db?kind=BIN_IVF_FLAT&lists=64&probes=8&collection=birds&consistency=bounded"
    found = MilvusOptions.of(f"{address}&timeout=2.5&shortlist=9", probes=1, timeout=10)
    assert found == MilvusOptions(
        where="https://host:19530/db",
        kind="BIN_IVF_FLAT",
        lists=64,
        probes=8,
        collection="birds",
        consistency="bounded",
        timeout=2.5,
        shortlist=9,
    )
    assert found.served
    file = MilvusOptions.of("milvus:a folder/codes.db?shortlist=7", timeout=10)
    assert (file.where, file.served, file.shortlist, file.timeout) == ("a folder/codes.db", False, 7, 10)
    assert MilvusOptions.of("milvus:http://host:1") == MilvusOptions(where="http://host:1")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("milvus:codes", "milvus:FILE.db or milvus:http://HOST:PORT, got milvus:codes"),
        ("milvus:codes.db?kind=BIN_IVF_FLAT", "BIN_FLAT alone: BIN_IVF_FLAT needs a server"),
        ("milvus:http://a:1?kind=HNSW", "must be BIN_FLAT or BIN_IVF_FLAT, got HNSW"),
        ("milvus:http://a:1?probes=many", "probes must be a number, got 'many'"),
        ("milvus:http://a:1?probes=0", "probes must be at least 1, got 0"),
        ("milvus:http://a:1?lists=0", "lists must be at least 1, got 0"),
        ("milvus:http://a:1?shortlist=0", "shortlist must be at least 1, got 0"),
        ("milvus:http://a:1?timeout=-1", "timeout must be at least 0.001, got -1"),
        ("milvus:http://a:1?probes=1&probes=2", "each option once, got probes twice"),
        ("milvus:http://a:1?nprobe=1", "has the options collection, kind, .* got 'nprobe'"),
        ("milvus:http://a:1?where=b", "has the options collection, kind, .* got 'where'"),
        ("milvus:http://a:1?consistency=none", "must be one of session, bounded, strong, got none"),
        ("milvus:http://a:1?collection=a-b", "letters, digits and _, no digit first, got 'a-b'"),
    ],
)
def test_wrong_options_are_one_sentence(address, said):
    with pytest.raises(ConfigError, match=said) as raised:
        MilvusOptions.of(address)
    assert "\n" not in str(raised.value)
