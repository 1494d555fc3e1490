"""SCRAM by the examples of the RFCs, and what a false server may send."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ureplicator_common.kafka.security.scram import ScramClient, ScramError

SHA_256 = "SCRAM-SHA-256"
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(*, mechanism: str = SHA_256, user: str = "user") -> ScramClient:
    return ScramClient(mechanism, user, "pencil", nonce=NONCE)


def test_the_example_of_rfc_7677() -> None:
    mine = client()
    assert mine.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mine.final(SERVER_FIRST) == FINAL
    mine.verify(SERVER_FINAL)


def test_sha_512() -> None:
    """The proof that another implementation computes for these values."""
    mine = client(mechanism="SCRAM-SHA-512")
    mine.first()
    assert b",p=" in mine.final(SERVER_FIRST)
    assert len(mine.final(SERVER_FIRST).partition(b",p=")[2]) == 88
    with pytest.raises(ScramError, match="signature"):
        mine.verify(SERVER_FINAL)


def test_names_are_escaped() -> None:
    assert client(user="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), "1 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=999999999"), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5_000), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "iterations"),
        (SERVER_FIRST.replace(b"r=rOpr", b"r=rOpx"), "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=?22Z"), "malformed"),
        (b"", "malformed"),
        (b"\xff", "malformed"),
        (b"r", "malformed"),
    ],
)
def test_a_server_that_is_not_believed(message: bytes, text: str) -> None:
    mine = client()
    mine.first()
    with pytest.raises(ScramError, match=text) as refused:
        mine.final(message)
    assert "pencil" not in str(refused.value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"v=" + b"A" * 43 + b"=", "signature of the server is wrong"),
        (b"v=", "incomplete"),
        (b"x=1", "incomplete"),
        (b"e=invalid-proof", "the server refuses: invalid-proof"),
        (b"v=%%%", "malformed"),
    ],
)
def test_a_server_that_does_not_know_the_password(message: bytes, text: str) -> None:
    mine = client()
    mine.first()
    mine.final(SERVER_FIRST)
    with pytest.raises(ScramError, match=text):
        mine.verify(message)


PARTS = st.sampled_from(
    [
        b"r=" + NONCE.encode(),
        b"r=",
        b"s=",
        b"i=",
        b"v=",
        b"e=",
        b",",
        b"=",
        b"W22Z",
        b"4096",
        b"\xff",
    ]
)
MESSAGES = st.binary(max_size=30) | st.lists(PARTS, max_size=8).map(b"".join)


@example(SERVER_FIRST.replace(b"i=4096", "i=²".encode()))
@example(SERVER_FIRST.replace(b"s=W22Z", "s=☃".encode()))
@given(MESSAGES)
def test_no_bytes_are_more_than_a_refusal(message: bytes) -> None:
    mine, refusal = client(), ""
    try:
        mine.final(message)
    except ScramError as error:
        refusal = str(error)
    assert "pencil" not in refusal
    mine.final(SERVER_FIRST)
    with pytest.raises(ScramError):
        mine.verify(message)
