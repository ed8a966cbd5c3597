"""The client of a module, which follows the module into other processes."""

from __future__ import annotations

import os
from typing import Any

from embag.client import Client

# Clients of the parent process that a forked process inherited. Their connections belong to the
# parent, so they are neither used nor closed here.
_inherited: list[Client] = []
# Without this, gRPC would give a forked process the parent's connection to the same address.
_OWN_CONNECTION = ('grpc.use_local_subchannel_pool', 1)


class Connection:
    """Connects to a server in each process anew, on the first lookup there.

    - client: a client, whose address and settings other processes use too; or 'HOST:PORT' or
      'unix:PATH'

    Copies of a module share its connection. A pickled one holds the client's settings unencrypted,
    including a token. A token_file is read where it is used.
    """

    def __init__(self, client: Client | str) -> None:
        if isinstance(client, str):
            self._address, self._settings = client, dict[str, Any]()
            self._held: tuple[int, Client] | None = None
        elif not isinstance(client, Client):
            raise TypeError("client is %r: expected an embag.Client, or 'HOST:PORT' or 'unix:PATH'"
                            % (client,))
        else:
            self._address, self._settings = client.address, dict(client.settings)
            self._held = os.getpid(), client

    @property
    def client(self) -> Client:
        """The client of this process."""
        held = self._held
        if held is None or held[0] != os.getpid():
            if held is not None:
                _inherited.append(held[1])
            held = self._held = os.getpid(), self._connect()
        return held[1]

    def _connect(self) -> Client:
        options = [_OWN_CONNECTION, *self._settings.get('options', ())]
        return Client(self._address, **{**self._settings, 'options': options})

    def __deepcopy__(self, memo: dict[int, Any]) -> Connection:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {'_address': self._address, '_settings': self._settings, '_held': None}

    def __repr__(self) -> str:
        return self._address
