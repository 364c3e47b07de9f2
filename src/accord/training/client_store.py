"""What clients remember between rounds, in memory or on disk, committed together with the run's checkpoint.

A client's state is staged while its round goes on, and counts once the round was accepted. On disk every state is a new
version in a file of its own; the versions that the last two checkpoints name stay until the next one names others, so a
run that is killed between two checkpoints finds the clients exactly as the checkpoint left them.
"""

import os
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.files import naming, sync_folder, tensor_bytes
from accord.core.jsonable import Json
from accord.core.record import State
from accord.runs.checkpoints import START_OVER
from accord.runs.checksums import checksum, read_tensors
from accord.runs.folder import client_file

Versions = dict[str, int]  # client -> round of the version that counts


class ClientStore:
    """Client states by client id. With a folder they live there, however many clients there are; without one, in
    memory."""

    def __init__(
        self, clients: list[str], folder: Path | None = None, last: Json | None = None, older: Json | None = None
    ) -> None:
        """`last` and `older` are the checkpoints to go on from, and before it."""
        versions: Versions = (last or {}).get("clients", {})
        self._number = {client: number for number, client in enumerate(clients)}
        self._folder = folder
        self._memory: dict[tuple[str, int], State] = {}
        self._staged: Versions = {}
        self._current: Versions = dict(versions)
        self._committed: Versions = dict(versions)
        self._older: Versions = (older or {}).get("clients", {})
        self.checksums: dict[str, str] = dict((last or {}).get("client_checksums", {}))  # of current states, on disk
        self._staged_checksums: dict[str, str] = {}
        self._unsynced: set[Path] = set()
        if folder is not None and folder.exists():
            kept = [*self._committed.items(), *self._older.items()]
            keep = {self._file(client, round) for client, round in kept if client in self._number}
            for file in folder.iterdir():  # what a killed process had not committed
                if file not in keep:
                    file.unlink()

    def get(self, client: str) -> State | None:
        """The client's state, or None if it never took part."""
        if client not in self._current:
            return None
        if self._folder is None:
            return self._memory[client, self._current[client]]
        file = self._file(client, self._current[client])
        try:
            return read_tensors(file, {self.checksums[client]} if client in self.checksums else None)
        except AccordError as error:
            other = self._older.get(client, self._current[client]) != self._current[client]
            way_on = "rename older.json to state.json to go on from the checkpoint before, or " if other else ""
            raise AccordError(f"what client {client} remembers: {error}: {way_on}{START_OVER}") from None

    def versions(self, client: str) -> tuple[int, int]:
        """The rounds of the state that counts and of the one that the last checkpoint names; 0 where there is none."""
        return self._current.get(client, 0), self._committed.get(client, 0)

    def stage(self, client: str, state: State, round: int) -> None:
        """Keeps a client's next state apart until its round is accepted."""
        if self._folder is None:
            self._memory[client, round] = {name: value.clone() for name, value in state.items()}
        else:
            self._folder.mkdir(exist_ok=True)
            file = self._file(client, round)
            content = tensor_bytes(state)
            with naming(file):
                file.write_bytes(content)
            self._unsynced.add(file)
            self._staged_checksums[client] = checksum(content)
        self._staged[client] = round

    def accept(self) -> None:
        """The round counts: what was staged is what its clients remember."""
        for client, round in self._staged.items():
            if client in self._current and (
                self._folder is None or self._current[client] != self._committed.get(client)
            ):
                self._remove(client, self._current[client])
            self._current[client] = round
        self.checksums |= self._staged_checksums
        self._staged.clear()
        self._staged_checksums.clear()

    def drop(self) -> None:
        """The round does not count: nobody remembers it."""
        for client, round in self._staged.items():
            self._remove(client, round)
        self._staged.clear()
        self._staged_checksums.clear()

    def sync(self) -> Json:
        """Makes every state safe on disk and says what a checkpoint should hold: the versions, and their checksums."""
        for file in sorted(self._unsynced):
            with open(file, "r+b") as handle:
                os.fsync(handle.fileno())
        if self._unsynced and self._folder is not None:
            sync_folder(self._folder)
        self._unsynced.clear()
        # In the clients' order: workers stage as they finish, and a checkpoint must not show who was first.
        versions = dict(sorted(self._current.items(), key=lambda entry: self._number[entry[0]]))
        known = {client: self.checksums[client] for client in versions if client in self.checksums}
        return {"clients": versions, **({"client_checksums": known} if known else {})}

    def committed(self) -> None:
        """Called once the checkpoint that names the versions is on disk: what the last but one named can go."""
        self._drop_older()
        self._older, self._committed = self._committed, dict(self._current)

    def forget_older(self) -> None:
        """No checkpoint but the last one counts any more."""
        self._drop_older()
        self._older = {}

    def _drop_older(self) -> None:
        for client, round in self._older.items():
            if self._folder is not None and round not in (self._committed.get(client), self._current.get(client)):
                self._remove(client, round)

    def _file(self, client: str, round: int) -> Path:
        assert self._folder is not None
        return client_file(self._folder, self._number[client], round)

    def _remove(self, client: str, round: int) -> None:
        self._memory.pop((client, round), None)
        if self._folder is not None:
            self._unsynced.discard(self._file(client, round))
            self._file(client, round).unlink(missing_ok=True)
