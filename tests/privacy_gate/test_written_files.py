"""What the watch over written files sees: everything of those who are watched, nothing of threads beside them."""

import tempfile
import threading
from pathlib import Path

from .written_files import written_files


def test_threads_that_were_there_before_are_not_told_of(tmp_path: Path) -> None:
    begun = threading.Event()

    def write_when_begun() -> None:
        begun.wait()
        (tmp_path / "others").touch()

    other = threading.Thread(target=write_when_begun)
    other.start()
    with written_files() as made:
        begun.set()
        other.join()
        own = threading.Thread(target=(tmp_path / "own").touch)
        own.start()
        own.join()
    assert made == [tmp_path / "own"]


def test_one_watch_ends_and_the_one_around_it_goes_on(tmp_path: Path) -> None:
    with written_files() as made:
        with written_files() as within:
            pass
        (tmp_path / "after").touch()
    assert (made, within) == ([tmp_path / "after"], [])


def test_a_file_without_a_name_leaves_nothing(tmp_path: Path) -> None:
    with written_files() as made, tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(b"nothing")
    assert made == []
