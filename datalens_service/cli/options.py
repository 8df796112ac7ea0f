"""Options that several commands share, and how numbers and sizes among them are written.

Plain notation only: Python itself would read `1_0` as 10.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from datalens_service.base.errors import InvalidInput
from datalens_service.base.parsing import decimal_number, whole_number
from datalens_service.data.image_sizes import ImageSize, parse_size

Parsed = TypeVar("Parsed", int, float, ImageSize)


def parse_number(value: str | float) -> float:
    """Parse a number; a default is one already."""
    return _parse(value, decimal_number) if isinstance(value, str) else value


def parse_integer(value: str | int) -> int:
    """Parse a whole number; a default is one already."""
    return _parse(value, whole_number) if isinstance(value, str) else value


def parse_image_size(value: str) -> str:
    """Check a size of images: `64` or `96x48`."""
    return str(_parse(value, parse_size))


def build_integer_parser(minimum: int, maximum: int | None = None) -> Callable[[str | int], int]:
    """A parser for whole numbers of at least `minimum` and, if there is a bound, at most `maximum`."""

    def parse_bounded(value: str | int) -> int:
        number = parse_integer(value)
        if number < minimum or (maximum is not None and number > maximum):
            bounds = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
            raise typer.BadParameter(f"Must be {bounds}.")
        return number

    return parse_bounded


def refuse_unused(context: typer.Context, *names: str, why: str) -> None:
    """Refuse options that were typed and would change nothing beside the others.

    Args:
        context: Context of the command that runs.
        names: Its parameters.
        why: The option they belong to.

    Raises:
        InvalidInput: One of them was typed.
    """
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in names and source is not None and source.name == "COMMANDLINE":
            raise InvalidInput(f"{option.opts[0]} {why}.")


def _parse(text: str, parser: Callable[[str], Parsed]) -> Parsed:
    try:
        return parser(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


_of_spec = partial(typer.Option, rich_help_panel="What to train")
_of_service = partial(typer.Option, rich_help_panel="Which service")
_of_unit = partial(typer.Option, rich_help_panel="Whom to protect")
_of_preparation = partial(typer.Option, rich_help_panel="How to prepare images")

AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]

Epsilon = Annotated[float, _of_spec("--epsilon", parser=parse_number, help="ε this job may spend.")]
PlannedEpsilon = Annotated[
    float | None,
    _of_spec("--epsilon", parser=parse_number, help="ε this job may spend; default: what --accuracy needs."),
]
Delta = Annotated[
    float | None, _of_spec("--delta", parser=parse_number, help="δ; default: min(1e-5, n^-1.1). Must be below 1/n.")
]
MethodName = Annotated[
    str | None, _of_spec("--method", help="Method, with what each releases; docs/methods.md says more.\n\n{methods}")
]
PresetName = Annotated[
    str | None,
    _of_spec(
        "--preset",
        show_default="auto",
        help="{presets}; see docs/cli.md. `datalens plan` says how long such jobs train on this machine, where they "
        "were measured.",
    ),
]


PurposeName = Literal["look", "teach"]
"""The purposes of `datalens_service.planning.presets`, which is not imported for --help."""

Purpose = Annotated[
    PurposeName,
    _of_spec(
        "--purpose",
        help="Purpose of the preset auto. look: images that look like the private ones; teach: images for training "
        "classifiers, which look worse where records are few.",
    ),
]
Settings = Annotated[
    list[str] | None,
    _of_spec(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter of the method, for example top_k=100 or warm_start.subspace_dimensions=40, or of the "
        "evaluation: evaluation.epochs=8. encoder=FILE.onnx takes a public encoder from a file. Repeatable.",
    ),
]
ClassShares = Annotated[
    str | None,
    _of_spec(
        "--class-shares",
        metavar="NUMBERS",
        help="Frequencies of the classes in their order, as you declare them public: 85,10,5. Images are drawn with "
        "them, and forecasts rest on them.",
    ),
]
Accuracy = Annotated[
    float | None,
    typer.Option(
        "--accuracy",
        parser=parse_number,
        help="Wanted percentage of right labels: find the least ε that is expected to reach it.",
    ),
]
Seed = Annotated[
    int,
    _of_spec(
        "--seed", parser=parse_integer, help="Seed of all randomness but the privacy noise, which never has a seed."
    ),
]
AcceptLowUtility = Annotated[
    bool,
    typer.Option("--accept-low-utility", help="Spend budget even if the plan says that the result is of little use."),
]
Priority = Annotated[
    int | None,
    typer.Option(
        "--priority",
        parser=build_integer_parser(0, 9),
        show_default="5",
        help="0 to 9; waiting jobs with a higher priority start first. A service may allow at most 5.",
    ),
]
ReleaseModeName = Literal["at_once", "after_approval"]
"""Moments at which the result of a job is handed out, as REST names them."""

Release = Annotated[
    ReleaseModeName,
    typer.Option(
        "--release",
        help="at_once: hand its result out when it is ready; after_approval: once a second person has released it.",
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; the audit journal keeps it.")]
SyntheticImages = Annotated[
    int,
    _of_spec(
        "--synthetic-images",
        parser=parse_integer,
        help="Images packed at the end; you can draw more later at no cost in ε.",
    ),
]
DrawnImages = Annotated[
    int | None,
    typer.Option(
        "--synthetic-images",
        parser=build_integer_parser(1),
        help="Number of images; default: those that the job packed. More cost no ε.",
    ),
]
Evaluation = Annotated[
    bool,
    _of_spec(
        "--evaluation/--no-evaluation",
        show_default="--evaluation",
        help="Measure usefulness on the test split, if there is one, after the images are ready.",
    ),
]


DeviceName = Literal["auto", "cpu", "gpu"]
"""The devices that a training request takes, whose module is not imported for --help."""

Device = Annotated[
    DeviceName,
    _of_spec(
        "--device",
        help="cpu: never on a GPU; gpu: only on a GPU; auto: wherever there is room. ε does not depend on it.",
    ),
]

ClassNames = Annotated[
    str | None,
    typer.Option("--class-names", help="Public class names in label order, separated by commas. This confirms them."),
]
ConfirmClasses = Annotated[
    bool,
    typer.Option(
        "--confirm-classes",
        help="The class names of the file may become public. Without this option you see them and are asked.",
    ),
]
RecordsPerUnit = Annotated[
    int | None,
    _of_unit(
        "--records-per-unit",
        parser=build_integer_parser(1),
        help="Most training images of one group, which is then the unit of protection. For data that say which images "
        "belong together (an array groups, or metadata.csv).",
    ),
]
ClassesPerUnit = Annotated[
    int | None,
    _of_unit("--classes-per-unit", parser=build_integer_parser(1), help="Most classes of one group's images."),
]
Unit = Annotated[str | None, _of_unit("--unit", help="What one group is called, for example patient.")]

PublicTest = Annotated[
    bool,
    typer.Option(
        "--public-test",
        help="The test split is public: figures measured on it may stand in the report that others get.",
    ),
]

PublicRecords = Annotated[
    bool,
    typer.Option(
        "--public-records",
        help="All records are public: jobs may start from them with --public-data. It cannot be changed later.",
    ),
]
PublicLicense = Annotated[
    str | None,
    typer.Option(
        "--public-license", help="Licence of the public images, in words; it is stated wherever they are released."
    ),
]
PublicData = Annotated[
    str | None,
    _of_spec(
        "--public-data",
        metavar="DATASET",
        help="Id or name of a data set that was uploaded with --public-records. {public_use}",
    ),
]

SharesBudgetWith = Annotated[
    str | None,
    typer.Option(
        "--shares-budget-with",
        metavar="DATASET",
        help="Id or name of a data set whose budget also pays for this one: for data that grows.",
    ),
]
LeaveOutConstantImages = Annotated[
    bool,
    typer.Option(
        "--leave-out-constant-images",
        help="Leave out training images of a single colour, which tie otherwise unrelated data sets together.",
    ),
]

IgnoreGroups = Annotated[
    bool,
    _of_unit(
        "--ignore-groups",
        help="Protect single images although the data say which images belong together. Cards say so.",
    ),
]
AllowIdentifyingClasses = Annotated[
    bool,
    typer.Option(
        "--allow-identifying-classes", help="Publish class names although they look like names or numbers of persons."
    ),
]
SkipUnreadable = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable",
        help="Leave out, and count, files that cannot be read as images or that no line of the metadata names.",
    ),
]
TextEncoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="Encoding of metadata and of names in archives if not UTF-8, for example latin-1 or cp850. Never guessed.",
    ),
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", metavar="NAME", help="Column of the metadata with the labels.")
]
GroupColumn = Annotated[
    str | None, _of_unit("--group-column", metavar="NAME", help="Column of the metadata with the persons.")
]

PrepareSize = Annotated[
    str | None,
    _of_preparation(
        "--prepare-size",
        metavar="SIZE",
        parser=parse_image_size,
        help="Bring every image to 64 by 64 pixels (64) or 96 wide and 48 high (96x48), whatever its size and kind, "
        "and report changes.",
    ),
]
FitName = Literal["resize", "crop"]
ColourName = Literal["grey", "rgb"]
"""Choices of `datalens_service.data.preparation_settings`, which is not imported for --help."""

PrepareFit = Annotated[FitName | None, _of_preparation("--prepare-fit", help="resize (if left out) or crop.")]
PrepareColour = Annotated[
    ColourName | None, _of_preparation("--prepare-colour", help="grey or rgb; default: rgb if one image is in colour.")
]
PrepareWindow = Annotated[
    tuple[int, int] | None,
    _of_preparation(
        "--prepare-window",
        metavar="LOW HIGH",
        help="Values that become 0 and 255 in images of more than 8 bits; DICOM files bring their own.",
    ),
]
PrepareFrame = Annotated[
    int | None,
    _of_preparation("--prepare-frame", min=1, help="Frame to read from files with several; default: the first."),
]

Data = Annotated[
    Path, typer.Option("--data", help="NPZ, Parquet, or a zip, tar or folder of labelled images.", exists=True)
]
Yes = Annotated[bool, typer.Option("--yes", help="Answer yes to questions; needed without a terminal.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if there is one of this name.")]
LabelName = Annotated[str | None, typer.Option("--name", help="Its new name.")]
LabelTags = Annotated[
    list[str] | None, typer.Option("--tag", help="A tag; the given tags replace all others. Repeatable.")
]
LabelNotes = Annotated[str | None, typer.Option("--notes", help="Notes of any kind.")]
JobId = Annotated[str, typer.Argument(help="Id of the job, job_…, or its name.")]
DatasetId = Annotated[str, typer.Argument(help="Id of the data set, ds_…, or its name.")]
Url = Annotated[str, _of_service("--url", envvar="DATALENS_URL", help="Address of the service.")]
ApiKey = Annotated[
    str,
    _of_service(
        "--api-key",
        envvar="DATALENS_API_KEY",
        show_default=False,
        help="Default: the key file of a service on this machine.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        envvar="DATALENS_DATA_DIR",
        help="Folder of records, artifacts, ledger and database.",
        file_okay=False,
    ),
]

DEFAULT_DATA_DIR = Path("datalens-data")
