"""A ZooKeeper ensemble: it serves as long as a majority of its servers do.

Members are ordinary servers that can be killed, frozen and started again one by one. Their limits are
short (a tick is 500 ms): a member that is silent for `syncLimit` ticks is dropped, and an election
takes about a second.
"""

from collections.abc import Sequence
from typing import Self

from ureplicator_testkit.servers.ports import PortClaim, claim_port
from ureplicator_testkit.servers.processes import Process, eventually
from ureplicator_testkit.servers.server import START_DEADLINE_S, start_all
from ureplicator_testkit.servers.zookeeper import ZOOKEEPER_CONFIG, ZooKeeperServer

ENSEMBLE_CONFIG = """\
initLimit=20
syncLimit=4
quorumListenOnAllIPs=false
"""


class EnsembleMember(ZooKeeperServer):
    """Started together with the others: alone it does not serve."""

    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def __init__(self, number: int, voters: str, *, name: str, heap_mb: int) -> None:
        super().__init__(name=f"{name}-{number}", heap_mb=heap_mb)
        self._number, self._voters = number, voters

    def config(self) -> str:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self._number}\n")
        return ZOOKEEPER_CONFIG.format(data=data, port=self.port) + ENSEMBLE_CONFIG + self._voters


class ZooKeeperEnsemble:
    """`hosts` names all members; faults are injected into single `members`."""

    def __init__(self, size: int = 3, *, name: str = "zookeeper", heap_mb: int = 64) -> None:
        self._claims: list[PortClaim] = [claim_port() for _ in range(2 * size)]
        ports = [claim.port for claim in self._claims]
        voters = "".join(
            f"server.{number + 1}=127.0.0.1:{ports[2 * number]}:{ports[2 * number + 1]}\n"
            for number in range(size)
        )
        self.members = [
            EnsembleMember(number + 1, voters, name=name, heap_mb=heap_mb) for number in range(size)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(member.hosts for member in self.members)

    @property
    def ports(self) -> Sequence[int]:
        return [member.port for member in self.members]

    def processes(self) -> list[Process]:
        return [process for member in self.members for process in member.processes()]

    def start(self) -> Self:
        try:
            start_all(*self.members)
        except BaseException:
            self.stop()
            raise
        return self

    def heal(self) -> None:
        """Thaw frozen members, start dead ones, and wait until each of them serves."""
        for member in self.members:
            member.resume()
            if not member.process.running:
                member.launch()
        for member in self.members:
            eventually(member.serves, START_DEADLINE_S, f"{member.name} serves")

    def leader(self) -> ZooKeeperServer:
        """The member that the others follow."""
        return next(member for member in self.members if member.responds_with("Mode: leader"))

    def stop(self) -> None:
        for member in self.members:
            member.stop()
        for claim in self._claims:
            claim.release()
        self._claims.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
