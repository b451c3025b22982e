"""How to reach Kafka: what is wrong with the files or the credentials is said, and no secret is."""

import logging
import subprocess
from pathlib import Path

import pytest
from aiokafka.protocol.admin import SaslAuthenticateRequest

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies.connection import Connection

PASSPHRASE = "herring"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate, and its key behind a passphrase."""
    folder = tmp_path_factory.mktemp("pair")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=ward", "-passout", f"pass:{PASSPHRASE}"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a key with")
    return certificate, key


def test_a_key_opens_with_its_passphrase(pair: tuple[str, str]) -> None:
    certificate, key = pair
    assert Connection("k:1", "SSL", ssl_certfile=certificate, ssl_keyfile=key, ssl_password=PASSPHRASE).ssl_context()


@pytest.mark.parametrize("passphrase", [None, "wrong"])
def test_a_key_without_its_passphrase_is_an_error_and_asks_nobody(pair: tuple[str, str], passphrase: str | None) -> None:
    certificate, key = pair
    connection = Connection("k:1", "SSL", ssl_certfile=certificate, ssl_keyfile=key, ssl_password=passphrase)
    with pytest.raises(StreamTppError, match=r"TLS files .*key\.pem\) can't be used .* \(ssl_password\) too") as error:
        connection.ssl_context()
    assert "wrong" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match=r"\(.*none\.pem\) can't be used \(.*No such file"):
        Connection("k:1", "SSL", ssl_cafile=str(tmp_path / "none.pem")).ssl_context()


def test_the_log_of_requests_leaves_out_those_with_credentials(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("aiokafka.conn")
    with caplog.at_level(logging.DEBUG, "aiokafka.conn"):
        log.debug("Request to %s: %s", "k:1", SaslAuthenticateRequest(b"\0ward\0swordfish"))
        log.debug("Request to %s: %s", "k:1", "another")
    assert caplog.messages == ["Request to k:1: another"]
