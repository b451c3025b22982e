"""The disk under the local store is full: the worker ends with a sentence that says so, and room is all that it wants."""

import asyncio
import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_tpp.topologies.settings import Settings
from tests.faults.conftest import FaultyKafka, settings_for
from tests.faults.fleet import Fleet, until
from tests.faults.traffic import Traffic, verdict

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MiB."""
    pytest.importorskip("rocksdict", reason="nothing but RocksDB writes to the disk")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk may be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def settings(own_kafka: FaultyKafka, name: str, tmp_path: Path, disk: Path) -> Settings:
    in_memory = settings_for(own_kafka.connection, name, tmp_path)
    return dataclasses.replace(
        in_memory, histories=dataclasses.replace(in_memory.histories, store="rocksdb", folder=disk / "data")
    )


def fill(disk: Path) -> Path:
    """A file that takes all the room there is."""
    hog = disk / "hog"
    with hog.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return hog


async def test_a_full_disk_ends_the_worker_with_a_sentence_and_room_brings_it_back(
    fleet: Fleet, traffic: Traffic, settings: Settings, disk: Path
) -> None:
    (worker,) = fleet.start()
    traffic.flow()
    await asyncio.sleep(2)
    hog = fill(disk)
    await asyncio.to_thread(until, lambda: not worker.running, "the worker ends", fleet.logs)
    successor = fleet.launch()
    await asyncio.to_thread(until, lambda: not successor.running, "its successor ends", fleet.logs)
    for ended in (worker, successor):
        assert ended.exit_code == 1
        last = ended.log.read_text().splitlines()[-1]
        assert f"in {settings.histories.folder}" in last
        assert "No space left on device" in last
    hog.unlink()
    (third,) = fleet.start()
    await traffic.pause()
    account = await verdict(settings, traffic.sent, fleet.logs)
    assert not account.reasons
    assert third.live
    # Those that end may say that they do, and never nonsense.
    assert third.said == {200}
    assert worker.said | successor.said <= {200, 503}
    print(f"{account.events_in} events, {account.duplicated} repeated records")
