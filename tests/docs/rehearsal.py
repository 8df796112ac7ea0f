"""One page of the documentation, typed from top to bottom in a folder of its own.

What a page leaves to its reader:

* `ds_…`, `job_…`, `aud_…`, `clf_…`, `gen_…` and `lnk_…` are the newest of their kind that the page has made, once they
  have ended. Where it has made none so far, they are a small data set and a small job, which pages share.
* `http://127.0.0.1:8000` is the service, `dlk_…` a key for it. A page that types `datalens serve` uses that service,
  every other one a service that runs.
* `5f3c…` and `KEY` behind `--key` are the public key of the service. `privacy.json`, `report.json` and `release.zip`
  come from the newest job; other files are those of `stand_ins.py`.
* What serves until Ctrl-C is typed in a further window, and answers before the next command is typed.
* Python has a connected `client` with its `url` and `api_key`, and `Path`; it imports what the page has written.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import numpy as np

from datalens_service.client import Client, DatasetInfo, Job, JobHandle
from deployments.fork_servers import warm_environment
from deployments.hold import HOOK_PATH
from other_programs import do_without
from tests.docs.commands import ROOT, Command
from tests.docs.shell import Answer, Shell
from tests.docs.stand_ins import CLASSES, write_private, write_stand_ins
from tests.ports import free_port

SERVES: Final = re.compile(r"datalens serve\b|uvicorn |celery ")
_ADDRESS: Final = "http://127.0.0.1:8000"
_PLACEHOLDER: Final = re.compile(r"\b(ds|job|aud|clf|gen|lnk)_…")
_RELEASED: Final = re.compile(r"(?<![\w/.])(privacy\.json|report\.json|release\.zip)")
_SMALL: Final = {"method": "moments", "epsilon": 1, "synthetic_images": 200, "evaluation": {"enabled": False}}
_PATIENCE: Final = 240
_NO_SUCH_PROGRAM: Final = 127
"""What bash answers where a program is not installed."""


class Access(NamedTuple):
    """A service that runs, and a key for it."""

    url: str
    api_key: str
    data_dir: Path


class _ClientOfFew(Client):
    """Stand-ins are few, whatever a page says of its images."""

    def submit(self, *arguments: Any, **options: Any) -> JobHandle:
        return super().submit(*arguments, **options | {"accept_low_utility": True})


class Rehearsal:
    """Types commands of one page. `access` is None for a page that starts its service itself."""

    def __init__(self, folder: Path, commands: list[Command], access: Access | None, settings: dict[str, str]) -> None:
        self._folder = folder
        self._port = free_port()
        self._access = access or Access(f"http://127.0.0.1:{self._port}", "", folder / "datalens-data")
        text = "\n".join(command.text for command in commands)
        write_stand_ins(folder, commands[0].page, text)
        if not (folder / ".venv").exists():
            (folder / ".venv").symlink_to(sys.prefix)
        (folder / ".curlrc").write_text("fail-with-body\n")
        self._shell = Shell(folder, self._environment() | settings)
        self._names: dict[str, Any] = {"Path": Path}
        # With test images a job is measured, which takes longer than all the rest.
        self._prepared = "private-with-test.npz" if "audit" in text else "private.npz"
        listed = (self.client.datasets, self.client.jobs, self.client.audits) if access else ()
        self._before = {one.id for every in listed for one in every()}

    def type(self, command: Command) -> str:
        """Type a command, which succeeds and answers what the page says; what it printed."""
        text = self._resolve(command.text)
        if command.language == "python":
            return self._execute(command, text)
        if SERVES.match(text):
            self._serve(text)
            return ""
        answer = self._shell.type(text)
        self._check(command, answer)
        return answer.text

    def check_outcomes(self) -> None:
        """What the page started has ended well, too."""
        jobs = [self.client.wait(job.id, interval=0.2) for job in self._made(self.client.jobs)]
        audits = [self.client.get_audit(name) for name in self._settle_audits()]
        assert {one.id: one.error for one in [*jobs, *audits] if one.state != "succeeded"} == {}

    def close(self) -> None:
        """End what the page started."""
        if "client" in self.__dict__:
            self.client.close()
        self._shell.close()

    @cached_property
    def client(self) -> Client:
        """Connected to the page's service."""
        return _ClientOfFew(self._access.url, self._api_key)

    @property
    def _api_key(self) -> str:
        return self._access.api_key or (self._access.data_dir / "api-key").read_text().strip()

    def _environment(self) -> dict[str, str]:
        """Of a person with nothing set but the way to the service; colours and bars would be in the answers."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DATALENS_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        modules = f"{HOOK_PATH}:{ROOT}:{self._folder}"
        ours = {"PATH": path, "HOME": self._folder, "TMPDIR": self._folder, **warm_environment(), "PYTHONPATH": modules}
        terminal = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PAGER": "cat"}
        ports = {"DATALENS_PORT": self._port, "UVICORN_PORT": self._port}
        service = {"DATALENS_URL": self._access.url, "DATALENS_DEVICE": "cpu", "DATALENS_LOG_LEVEL": "warning"}
        if self._access.api_key:
            service |= {"DATALENS_API_KEY": self._access.api_key, "DATALENS_DATA_DIR": str(self._access.data_dir)}
        return {name: str(value) for name, value in (kept | ours | terminal | ports | service).items()}

    def _resolve(self, text: str) -> str:
        """The command with what the reader puts in."""
        if _RELEASED.search(text) and not (self._folder / "release.zip").exists():
            self._download_release()
        text = _PLACEHOLDER.sub(lambda found: self._newest(found[1]), text.replace(_ADDRESS, self._access.url))
        if "dlk_…" in text:
            text = text.replace("dlk_…", self._api_key)
        return re.sub(r"(?<=--key )(KEY|5f3c…)(?= )", lambda _: self._public_key()["public_key"], text)

    def _newest(self, kind: str) -> str:
        if kind == "ds":
            return self._newest_dataset().id
        if kind == "aud":
            return self._settle_audits()[0]
        job = self._newest_job()
        generator = job.id.replace("job", "gen", 1)
        if kind == "gen":
            return generator
        if kind == "lnk":
            return self.client.release_links(generator)[-1].id
        return job.id if kind == "job" else next(self.client.classifiers()).id

    def _newest_dataset(self) -> DatasetInfo:
        found = next(self._made(self.client.datasets), None) or self._prepared_dataset()
        return self.client.wait_for_dataset(found, interval=0.2)

    def _newest_job(self) -> Job:
        found = next(self._made(self.client.jobs), None) or self._prepared_job()
        return self.client.wait(found.id, interval=0.2)

    def _settle_audits(self) -> list[str]:
        return [self.client.wait_for_audit(audit.id, interval=0.2).id for audit in self._made(self.client.audits)]

    def _made(self, listed: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Those that this page has made."""
        return (one for one in listed() if one.id not in self._before)

    def _prepared_dataset(self) -> DatasetInfo:
        path = self._folder / self._prepared
        found = next((dataset for dataset in self.client.datasets() if dataset.name == path.name), None)
        if found is None:
            write_private(path, np.random.default_rng(), with_test="test" in path.name)
            classes = tuple(map(str, range(CLASSES)))
            found = self.client.upload_dataset(path, epsilon=20, name=path.name, class_names=classes)
        return found

    def _prepared_job(self) -> Job:
        """The same for all pages; what another page has made may be a classifier."""
        return self.client.submit(self._prepared_dataset().id, _SMALL, idempotency_key=self._prepared)

    def _download_release(self) -> None:
        self.client.download_bundle(self._newest_job().id, self._folder / "release.zip")
        with zipfile.ZipFile(self._folder / "release.zip") as archive:
            for name in ("privacy.json", "report.json"):
                archive.extract(name, self._folder)
        (self._folder / "signing-key.pem").write_text(self._public_key()["pem"])

    def _public_key(self) -> dict[str, str]:
        with urllib.request.urlopen(f"{self._access.url}/v1/signing-key") as answer:  # noqa: S310
            return dict(json.loads(answer.read()))

    def _serve(self, text: str) -> None:
        self._shell.start(text)
        opens = f'from urllib.request import urlopen; urlopen("http://127.0.0.1:{self._port}/readyz")'
        asks = "-m datalens_service.workers.process.health" if text.startswith("celery") else f"-c {shlex.quote(opens)}"
        until = shlex.quote(f"until python {asks} > answered 2>&1; do sleep 0.2; done")
        answer = self._shell.type(f"timeout {_PATIENCE} bash -c {until}")
        assert answer.code == 0, (self._folder / ".window").read_text()

    def _check(self, command: Command, answer: Answer) -> None:
        if answer.code == _NO_SUCH_PROGRAM:
            do_without(f"{command}\n{answer.text}")
        assert answer.code == 0, f"{command}\nends with {answer.code}:\n{answer.text}"
        assert command.answer is None or answer.text.strip() == command.answer, f"{command}\nanswers:\n{answer.text}"

    def _execute(self, command: Command, text: str) -> str:
        if re.search(r"\b(client|url|api_key)\b", text):
            self._names |= {"client": self.client, "url": self._access.url, "api_key": self._api_key}
        # Tracebacks name the page.
        code = compile("\n" * (command.line - 1) + text, ROOT / command.page, "exec")
        importable = mock.patch.object(sys, "path", [str(self._folder), *sys.path])
        with importable, contextlib.chdir(self._folder), contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self._names)  # noqa: S102
        return printed.getvalue()
