"""A SuperNode that sends some replies twice, and old ones once more, as `soak_app/faulty/faults.py` says. All else is
Flower's own. `soak.py` starts it in the place of `flower-supernode`."""

import sys
from logging import INFO
from typing import Any

from flwr.common.logger import log
from flwr.supernode import start_client_internal as supernode
from flwr.supernode.cli import flower_supernode
from soak_app.faulty.faults import doubled

_push = supernode._push_messages
_old: list[tuple[Any, ...]] = []  # the first reply of a round that this process sent


def me() -> int:
    return int(sys.argv[sys.argv.index("--node-config") + 1].split("partition-id=")[1].split()[0])


def push(state: Any, object_store: Any, send: Any, push_object: Any) -> None:
    def twice(*reply: Any) -> Any:
        answer = send(*reply)
        round = reply[0].metadata.group_id
        if round and doubled(int(round)) == me():
            for what, again in [("duplicate", reply), *(("replay", old) for old in _old)]:
                try:
                    send(*again)
                    log(INFO, "soak: %s taken in round %s", what, round)
                except Exception as error:
                    log(INFO, "soak: %s refused in round %s: %s", what, round, " ".join(str(error).split())[:200])
        if round and not _old:
            _old.append(reply)
        return answer

    _push(state, object_store, twice, push_object)


def main() -> None:
    supernode._push_messages = push
    flower_supernode()


if __name__ == "__main__":
    main()
