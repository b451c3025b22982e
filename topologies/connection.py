"""How to reach Kafka: the servers, TLS and SASL, in the words of aiokafka and of Faust."""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from faust.auth import SASLCredentials, SSLCredentials
from faust.types.auth import CredentialsT
from yarl import URL

from stream_tpp.errors import StreamTppError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# At debug level aiokafka logs each request as it is, the one with the password too.
logging.getLogger(create_conn.__module__).addFilter(
    lambda record: not any(type(part).__name__.startswith("SaslAuthenticate") for part in record.args or ())
)

REACH_WITHIN = 5.0
RETRY_EVERY = 0.1


class BrokerUnreachable(StreamTppError):
    """No broker answered at the configured servers."""


class RefusedByBroker(StreamTppError):
    """A broker answered, and TLS or the credentials failed."""


@dataclass(frozen=True)
class Connection:
    """Where the brokers are and how they want to be spoken to; the password and the key's passphrase never show.

    `bootstrap_servers` is "host:port[,host:port ...]". Raises StreamTppError for a server without a port, an unknown
    protocol or mechanism, and SASL without credentials.
    """

    bootstrap_servers: str = "localhost:9092"
    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.security_protocol not in PROTOCOLS:
            raise StreamTppError(
                f"The security protocol {self.security_protocol!r} is unknown: use one of {', '.join(PROTOCOLS)}."
            )
        if self.sasl_mechanism not in MECHANISMS:
            raise StreamTppError(
                f"The SASL mechanism {self.sasl_mechanism!r} is not one that settings can describe: use one of "
                f"{', '.join(MECHANISMS)}, or build your own faust.App with its credentials and plug into it."
            )
        if self.security_protocol.startswith("SASL") and not (self.sasl_username and self.sasl_password):
            raise StreamTppError(
                f"The security protocol {self.security_protocol} needs kafka.sasl_username and kafka.sasl_password "
                "(STREAM_TPP_KAFKA_SASL_USERNAME and STREAM_TPP_KAFKA_SASL_PASSWORD)."
            )
        for server in self.servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise StreamTppError(
                    f"The Kafka server {server!r} is not host:port: write bootstrap servers as host:port[,host:port]."
                )

    @property
    def servers(self) -> list[str]:
        return [server.strip() for server in self.bootstrap_servers.split(",") if server.strip()] or [""]

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context, None where the protocol has no TLS. Raises StreamTppError for files that can't be read."""
        if self.security_protocol not in ("SSL", "SASL_SSL"):
            return None
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ssl_cafile)
            context.check_hostname = self.ssl_check_hostname
            if self.ssl_certfile is not None:
                # Without a passphrase OpenSSL would ask for one on the terminal, and wait.
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, self.ssl_password or "")
        except OSError as error:
            files = ", ".join(str(file) for file in (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile) if file)
            raise StreamTppError(
                f"The TLS files of the Kafka connection ({files}) can't be used ({error}): check the ssl_ settings under "
                "[kafka], the passphrase of the key (ssl_password) too."
            ) from error
        return context

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments of any aiokafka client: producer, consumer or admin."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.security_protocol,
            "ssl_context": self.ssl_context(),
        }
        if self.security_protocol.startswith("SASL"):
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_plain_username"] = self.sasl_username
            options["sasl_plain_password"] = self.sasl_password
        return options

    def faust_options(self) -> dict[str, Any]:
        """Keyword arguments of `faust.App`: the broker's URLs and credentials."""
        return {
            "broker": [URL(f"kafka://{server}") for server in self.servers],
            "broker_credentials": self._credentials(),
        }

    def _credentials(self) -> CredentialsT | None:
        context = self.ssl_context()
        if self.security_protocol.startswith("SASL"):
            return SASLCredentials(
                username=self.sasl_username,
                password=self.sasl_password,
                ssl_context=context,
                mechanism=self.sasl_mechanism,
            )
        return None if context is None else SSLCredentials(context)


async def connect(connection: Connection, within: float = REACH_WITHIN) -> AIOKafkaAdminClient:
    """A started admin client (close it), once a broker has answered.

    Tries for `within` seconds, since a broker may be starting too. Raises BrokerUnreachable when none answers, and
    RefusedByBroker at once when TLS or the credentials are at fault.
    """
    options = connection.client_options()
    reasons: list[str] = []
    try:
        async with asyncio.timeout(within):
            await _answering(connection, reasons)
            client = AIOKafkaAdminClient(**options, request_timeout_ms=int(within * 1000))
            try:
                await client.start()
            except BaseException:
                await client.close()
                raise
            return client
    except (TimeoutError, KafkaError) as error:
        raise BrokerUnreachable(
            f"No Kafka broker answers at {connection.bootstrap_servers} ({reasons[-1] if reasons else 'silence'}): start one, "
            "or set KAFKA_BOOTSTRAP_SERVERS to where it is (and kafka.security_protocol, where it wants TLS or SASL, and "
            "kafka.ssl_certfile, where it wants a certificate)."
        ) from error


async def _answering(connection: Connection, reasons: list[str]) -> None:
    """Return when a server takes the connection, its TLS and its credentials; write each reason against it into `reasons`.

    aiokafka's clients would write each attempt to the log as an error, and keep the reason for themselves.
    """
    options = {key: value for key, value in connection.client_options().items() if key != "bootstrap_servers"}
    while True:
        for server in connection.servers:
            host, _, port = server.rpartition(":")
            try:
                answering = await create_conn(host.strip("[]"), int(port), **options)
            except (ssl.SSLError, SaslAuthenticationFailed, UnsupportedSaslMechanismError) as error:
                raise RefusedByBroker(
                    f"Kafka at {server} does not take the connection ({_reason(error)}): check security_protocol and the "
                    "ssl_ and sasl_ settings under [kafka]."
                ) from error
            except (OSError, KafkaError) as error:
                reasons.append(_reason(error))
            else:
                answering.close()
                return
        await asyncio.sleep(RETRY_EVERY)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def count_brokers(connection: Connection, within: float = 0.5) -> int:
    """How many brokers the cluster shows just now; 0 where none answers. Blocks, with or without an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _count(connection, within)).result()


async def _count(connection: Connection, within: float) -> int:
    try:
        client = await connect(connection, within)
    except BrokerUnreachable:
        return 0
    try:
        return len((await client.describe_cluster())["brokers"])
    except KafkaError:
        return 0
    finally:
        await client.close()
