import json
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from datalens_service.data.export import WrittenImages, image_folder
from datalens_service.data.export.image_folder import class_folders


def test_layout(tmp_path: Path, release: WrittenImages) -> None:
    image_folder.write(tmp_path / "a", release)
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert archive.namelist() == [
            "card.json",
            "classes.json",
            "2/00000000.png",
            "0_T-shirt_top/00000001.png",
            "1_Übergang/00000002.png",
            "0_T-shirt_top/00000003.png",
            "2/00000004.png",
            "2/00000005.png",
            "1_Übergang/00000006.png",
        ]
        classes = json.loads(archive.read("classes.json"))
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    assert classes == {"class_names": list(release.schema.class_names), "folders": ["0_T-shirt_top", "1_Übergang", "2"]}


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (tuple("0123456789"), tuple("0123456789")),
        (("ant", "bee"), ("ant", "bee")),
        (("bee", "ant"), ("0_bee", "1_ant")),
        (("A", "a"), ("0_A", "1_a")),
        (("a b", "a/b"), ("0_a_b", "1_a_b")),
        ((".hidden", "__MACOSX", "..", "1.png"), ("0_hidden", "1_MACOSX", "2", "3_1_png")),
        (("\ufb01sh",), ("0_fish",)),
        (("x" * 100,), ("0_" + "x" * 64,)),
    ],
)
def test_class_folders(names: tuple[str, ...], folders: tuple[str, ...]) -> None:
    assert class_folders(names) == folders


@pytest.mark.parametrize("count", [1, 2, 10, 11, 100, 1000])
def test_sorted_folders_number_the_classes(count: int) -> None:
    folders = class_folders(tuple(str(i) for i in range(count)))
    assert sorted(folders) == list(folders)
    assert len({folder.casefold() for folder in folders}) == count
    assert all(len(PurePosixPath(folder).parts) == 1 for folder in folders)
