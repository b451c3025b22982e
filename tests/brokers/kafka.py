"""Apache Kafka in KRaft mode, started from Maven Central's jars: one node or several, each a process of ours.

Needs Java 17 or newer and Maven. The jars stay in Maven's own cache and the list of them in the user's cache folder,
so that only a machine's first start asks Maven.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stream_tpp.topologies.child import Child
from stream_tpp.topologies.connection import Connection, count_brokers

HOST = "127.0.0.1"
POM = Path(__file__).with_name("pom.xml")
CLUSTER_ID = "c3RyZWFtLXRwcC10ZXN0cw"
READY_WITHIN = 90.0
RESOLVE_WITHIN = 240.0
LEAST_JAVA = 17

# A test broker lives for seconds: no time to warm up, little to hold. Parallel compilers and collectors would only take
# the cores that the worker under test needs.
JVM = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

# What the secured listener takes, by any of the mechanisms, and what opens the key of its client's certificate.
USER, PASSWORD, PASSPHRASE = "ward", "swordfish", "halibut"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class KafkaUnavailable(Exception):
    """Apache Kafka can't be started here; the message says why."""


@dataclass(frozen=True)
class Ports:
    plain: int
    controller: int
    secured: int


class KafkaCluster:
    """Apache Kafka with `nodes` brokers that are controllers, too. Topics must be declared: none is made by being asked for.

    `connection` reaches it in the clear; with `secured`, `secured_connection` does over TLS, with a certificate of the client's
    own and a password. Raises KafkaUnavailable when Java or Maven is missing or the jars can't be had.
    """

    def __init__(self, folder: Path, nodes: int = 1, *, secured: bool = False) -> None:
        self.folder = folder
        self.secured = secured
        self.ports = _free_ports(nodes)
        self.command = [java(), *JVM, "-cp", classpath()]
        self._nodes: dict[int, Child] = {}
        if secured:
            _make_certificates(folder)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._format, self.numbers))

    @property
    def numbers(self) -> range:
        """The numbers of the nodes, from 1."""
        return range(1, len(self.ports) + 1)

    @property
    def connection(self) -> Connection:
        return Connection(",".join(f"{HOST}:{ports.plain}" for ports in self.ports))

    def secured_connection(self, mechanism: str = "PLAIN") -> Connection:
        return Connection(
            ",".join(f"{HOST}:{ports.secured}" for ports in self.ports),
            security_protocol="SASL_SSL",
            ssl_cafile=str(self.folder / "certificate.pem"),
            ssl_certfile=str(self.folder / "client.pem"),
            ssl_keyfile=str(self.folder / "client.key"),
            ssl_password=PASSPHRASE,
            sasl_mechanism=mechanism,
            sasl_username=USER,
            sasl_password=PASSWORD,
        )

    def start(self) -> Self:
        for number in self.numbers:
            self.start_node(number)
        self.await_nodes(len(self.ports))
        return self

    def stop(self) -> None:
        """End all nodes at once: what they hold is not wanted any more, and in order the last would wait for the others."""
        for node in self._nodes.values():
            node.kill()
        self._nodes.clear()

    def start_node(self, number: int) -> None:
        self._nodes[number] = Child([*self.command, "kafka.Kafka", str(self._properties(number))], self._log(number))

    def stop_node(self, number: int) -> None:
        """Have the node hand its partitions over and end."""
        self._nodes.pop(number).end(within=30.0)

    def kill_node(self, number: int) -> None:
        """End the node as a crash would; what it had on disk stays."""
        self._nodes.pop(number).kill()

    def await_nodes(self, count: int) -> None:
        """Wait until the cluster shows `count` brokers."""
        deadline = time.monotonic() + READY_WITHIN
        while count_brokers(self.connection) != count:
            for number, node in self._nodes.items():
                if not node.running:
                    raise RuntimeError(f"Kafka node {number} ended: {self._log(number).read_text()[-3000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not show {count} brokers in {READY_WITHIN:.0f} s; see {self.folder}")
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def _properties(self, number: int) -> Path:
        return self.folder / f"node-{number}.properties"

    def _format(self, number: int) -> None:
        self._properties(number).write_text("\n".join(f"{key}={value}" for key, value in self._settings(number).items()))
        command = [*self.command, "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID]
        command += ["--config", str(self._properties(number))]
        for mechanism in SCRAM if self.secured else ():
            command += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka could not format the storage of node {number}: {done.stderr or done.stdout}")

    def _settings(self, number: int) -> dict[str, object]:
        copies = min(3, len(self.ports))
        ports = self.ports[number - 1]
        listeners = [f"PLAINTEXT://{HOST}:{ports.plain}", *([f"SASL_SSL://{HOST}:{ports.secured}"] if self.secured else [])]
        return {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": ",".join(f"{n}@{HOST}:{self.ports[n - 1].controller}" for n in self.numbers),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{ports.controller}"]),
            "advertised.listeners": ",".join(listeners),
            "log.dirs": self.folder / f"node-{number}",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": 0,
            "default.replication.factor": copies,
            "min.insync.replicas": min(2, copies),
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(2, copies),
            # On the heap, all of it at once.
            "log.cleaner.dedupe.buffer.size": 16 << 20,
            **(self._security() if self.secured else {}),
        }

    def _security(self) -> dict[str, object]:
        modules = "org.apache.kafka.common.security"
        plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{modules}.scram.ScramLoginModule required;"
        return {
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *SCRAM]),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            **{f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config": scram for mechanism in SCRAM},
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": self.folder / "keystore.p12",
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": self.folder / "truststore.p12",
            "ssl.truststore.password": PASSWORD,
            "listener.name.sasl_ssl.ssl.client.auth": "required",
        }


def java() -> str:
    """The Java to run Kafka with."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise KafkaUnavailable("there is no java on the path")
    told = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < LEAST_JAVA:
        raise KafkaUnavailable(f"Kafka needs Java {LEAST_JAVA}, this is {told.splitlines()[0] if told else 'none'}")
    return found


def classpath() -> str:
    """Kafka's jars, resolved by Maven once and again when any is gone."""
    known = _cache() / f"classpath-{_version()}.txt"
    if known.is_file() and all(Path(jar).is_file() for jar in known.read_text().split(os.pathsep)):
        return known.read_text()
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("there is no mvn on the path")
    known.parent.mkdir(parents=True, exist_ok=True)
    fresh = known.with_suffix(f".{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"Maven did not bring Kafka's jars within {RESOLVE_WITHIN:.0f} s") from None
    if done.returncode:
        raise KafkaUnavailable(f"Maven could not bring Kafka's jars: {done.stdout[-500:]}")
    fresh.replace(known)
    return known.read_text()


def _version() -> str:
    found = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)<", POM.read_text())
    assert found is not None
    return found[1]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stream-tpp" / "kafka"


def _free_ports(nodes: int) -> list[Ports]:
    with ExitStack() as held:
        # All are held until all are known, or one might be given twice.
        sockets = [held.enter_context(socket.socket()) for _ in range(3 * nodes)]
        for one in sockets:
            one.bind((HOST, 0))
        numbers = [one.getsockname()[1] for one in sockets]
    return [Ports(*numbers[3 * node : 3 * node + 3]) for node in range(nodes)]


def _make_certificates(folder: Path) -> None:
    """The broker's, and one of its clients, in whose names nobody but they themselves sign."""
    beside = Path(java()).with_name("keytool")
    keytool = str(beside) if beside.exists() else "keytool"
    store = ["-keystore", str(folder / "keystore.p12"), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
    pair = ["-genkeypair", "-keyalg", "RSA", "-dname", f"CN={HOST}", "-ext", f"SAN=IP:{HOST}", "-validity", "2"]
    subprocess.run([keytool, *pair, *store], check=True, capture_output=True)
    export = ["-exportcert", "-rfc", "-file", str(folder / "certificate.pem")]
    subprocess.run([keytool, *export, *store], check=True, capture_output=True)
    if shutil.which("openssl") is None:
        raise KafkaUnavailable("there is no openssl on the path")
    client = ["-keyout", str(folder / "client.key"), "-out", str(folder / "client.pem"), "-passout", f"pass:{PASSPHRASE}"]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", f"/CN={USER}", "-days", "2", *client]
    subprocess.run(request, check=True, capture_output=True)
    trust = ["-keystore", str(folder / "truststore.p12"), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", USER]
    subprocess.run(
        [keytool, "-importcert", "-noprompt", "-file", str(folder / "client.pem"), *trust], check=True, capture_output=True
    )
