"""Checks that a PostgreSQL server answers at all.

The kernel acknowledges what a frozen server is sent: its connections look sound, and nothing ever comes back. So who
has heard nothing for a while looks whether a new connection is answered. A slow statement is waited for, a silent
server is not, and for as long as it is silent everybody else is refused at once (`patience.py` says who waits).
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, TransactionStatus
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from datalens_service.base.errors import StoreUnavailable
from datalens_service.store import patience
from datalens_service.store.patience import is_impatient

_SILENCE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 2
_LEAST_SECONDS: Final = 0.05
"""Bound of who has no patience left; PostgreSQL reads 0 as none."""
_NOTABLE_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 40.0
"""Longest silence of one connection to a server that answers others; no lock is waited for so long."""

_T = TypeVar("_T")


class DatabaseServer:
    """A server, as all connections of this process to it have found it."""

    def __init__(self, connections: int, seconds: float) -> None:
        self._seconds = seconds
        # The pool would not wake who waits for a connection when one could not be opened.
        self._free = threading.Semaphore(connections)
        self._silent = threading.Event()
        self._turn = threading.Lock()
        self._answered = float("-inf")

    @contextmanager
    def admit(self) -> Generator[None]:
        """Wait for a free connection, and use it in the block; spares the impatient what others waited for in vain.

        Raises:
            StoreUnavailable: The server is silent.
            PoolTimeout: All are in use.
        """
        self._check()
        with patience.waiting():
            free = self._free.acquire(timeout=patience.seconds_left(self._seconds))
        if not free:
            raise PoolTimeout
        try:
            self._check()
            yield
        finally:
            self._free.release()

    def connect(
        self, _dialect: Dialect, _record: ConnectionPoolEntry, _arguments: Any, parameters: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        """A connection; for the event `do_connect`.

        Raises:
            psycopg.OperationalError: The server did not take it.
        """
        if not is_impatient():
            return _Connection.to(self, parameters)
        if self._silent.is_set():
            raise psycopg.errors.ConnectionTimeout("the server is silent")
        try:
            with patience.waiting():
                return _Connection.to(self, {**parameters, "connect_timeout": _LOOK_SECONDS})
        except psycopg.errors.ConnectionTimeout:
            self._note_silence(parameters)
            raise

    def is_silent(self, parameters: dict[str, Any]) -> bool:
        """Look, by a connection of its own; who asks meanwhile gets the same answer."""
        with self._turn:
            lately = time.monotonic() - self._answered < _SILENCE_SECONDS
            if not self._silent.is_set() and not lately and not self._answers(parameters):
                self._note_silence(parameters)
        return self._silent.is_set()

    def _check(self) -> None:
        if self._silent.is_set() and is_impatient():
            raise StoreUnavailable("The database does not answer, so nothing happened; repeat.")

    def _answers(self, parameters: dict[str, Any]) -> bool:
        try:
            psycopg.connect(**{**parameters, "connect_timeout": _LOOK_SECONDS}).close()
        except psycopg.errors.ConnectionTimeout:
            return False
        except psycopg.OperationalError:
            # A refusal is an answer; the next statement will say what is wrong.
            pass
        self._answered = time.monotonic()
        return True

    def _note_silence(self, parameters: dict[str, Any]) -> None:
        if not self._silent.is_set():
            self._silent.set()
            threading.Thread(target=self._listen, args=(parameters,), name="database", daemon=True).start()

    def _listen(self, parameters: dict[str, Any]) -> None:
        while not self._answers(parameters):
            time.sleep(_SILENCE_SECONDS)
        self._silent.clear()


class _Connection(psycopg.Connection[Any]):
    """A connection that the impatient leave when the server is silent."""

    _server: DatabaseServer
    _parameters: dict[str, Any]
    _bound = float("inf")
    """Seconds that the present transaction waits for a lock."""

    @classmethod
    def to(cls, server: DatabaseServer, parameters: dict[str, Any]) -> Self:
        connection = cls.connect(**parameters)
        connection._server, connection._parameters = server, parameters
        try:
            connection._prepare_nothing_behind_a_pooler()
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _prepare_nothing_behind_a_pooler(self) -> None:
        """A statement that was prepared in one session of the server would be looked for in another."""
        self.autocommit = True
        process = self.execute("SELECT pg_backend_pid()").fetchone()
        self.autocommit = False
        # A pooler names no process, or another one: who it will be is not known when a client comes.
        if process != (self.info.backend_pid,):
            self.prepare_threshold = None

    def _start_query(self) -> PQGen[None]:
        """As the driver does; the impatient wait less for locks, also when they read.

        A transaction begins with that, without a message more. A further one tells what statements have left of it.
        """
        begins = self.pgconn.transaction_status == TransactionStatus.IDLE
        if self.autocommit or not is_impatient():
            yield from super()._start_query()
            return
        left = max(_LEAST_SECONDS, patience.seconds_left(_LEAST_SECONDS))
        if begins:
            yield from self._send(self._get_tx_start_command() + b"; " + self._bound_locks(left))
        elif self.pgconn.transaction_status == TransactionStatus.INTRANS and left < self._bound - _NOTABLE_SECONDS:
            yield from self._send(self._bound_locks(left))

    def _bound_locks(self, seconds: float) -> bytes:
        self._bound = seconds
        return f"SET LOCAL lock_timeout = {round(1000 * seconds)}".encode()

    def _send(self, commands: bytes) -> PQGen[None]:
        self.pgconn.send_query(commands)
        for result in (yield from generators.execute(self.pgconn)):
            if result.status != ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(result)

    def wait(self, gen: PQGen[_T], *arguments: Any, **options: Any) -> _T:
        """Wait as the driver does, which resumes `gen` ten times a second whether or not anything came."""
        with patience.waiting():
            return super().wait(self._attended(gen) if is_impatient() else gen, *arguments, **options)

    def _attended(self, gen: PQGen[_T]) -> PQGen[_T]:
        began = looked = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if ready:
                    began = looked = time.monotonic()
                elif time.monotonic() - looked >= _SILENCE_SECONDS:
                    self._look(time.monotonic() - began)
                    looked = time.monotonic()
                state = gen.send(ready)
        except StopIteration as ended:
            result: _T = ended.value
            return result

    def _look(self, silent_seconds: float) -> None:
        if silent_seconds < _LONGEST_SECONDS and not self._server.is_silent(self._parameters):
            return
        # Nobody may use it again: the answer to this statement may still come.
        with suppress(psycopg.Error):
            self.pgconn.finish()
        raise psycopg.OperationalError("the server does not answer")
