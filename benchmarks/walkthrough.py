"""The whole flow by curl, by command line and from Python, against a real service: writes docs/walkthrough.md.

    python -m benchmarks.walkthrough docs/walkthrough.md

The images are MNIST's (DATALENS_TEST_DATA or ../shared/data), in three of the accepted formats. Everything on the page
was typed and answered exactly so; only the key is hidden and long answers are cut.
"""

from __future__ import annotations

import gzip
import io
import os
import runpy
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.environment import DATA, ROOT, provenance

LINES = 24
# By its path: installed packages may bring a package named `examples`.
serving = runpy.run_path(str(ROOT / "examples" / "serve_and_download.py"))["serving"]
SPEC = '{"method": "moments", "epsilon": 1, "synthetic_images": 2000, "evaluation": {"enabled": false}}'

CURL = [
    (
        "Announce the file: MNIST's own four files in a tar.",
        'curl -si -X POST -H "$AUTH" -H "Tus-Resumable: 1.0.0" -H "Upload-Length: $(stat -c %s mnist-idx.tar)" '
        "$URL/v1/uploads | grep -i -e ^HTTP -e ^location -e ^upload | tee created",
    ),
    (
        "Send the first 5,000,000 bytes, as if the connection broke.",
        "UPLOAD=$(sed -n 's/^location: //Ip' created | tr -d '\\r'); echo $UPLOAD > upload; "
        'head -c 5000000 mnist-idx.tar | curl -si -X PATCH -H "$AUTH" -H "Tus-Resumable: 1.0.0" '
        '-H "Upload-Offset: 0" -H "Content-Type: application/offset+octet-stream" --data-binary @- '
        "$URL$UPLOAD | grep -i -e ^HTTP -e ^upload",
    ),
    (
        "Ask how much arrived, and send the rest with a checksum.",
        'curl -sI -H "$AUTH" -H "Tus-Resumable: 1.0.0" $URL$(cat upload) | grep -i ^upload-offset; '
        "tail -c +5000001 mnist-idx.tar > rest; "
        'curl -si -X PATCH -H "$AUTH" -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 5000000" '
        '-H "Content-Type: application/offset+octet-stream" '
        '-H "Upload-Checksum: sha256 $(openssl dgst -sha256 -binary rest | base64)" --data-binary @rest '
        "$URL$(cat upload) | grep -i -e ^HTTP -e ^upload",
    ),
    (
        "Create a dataset. The file is read after the answer.",
        'curl -s -H "$AUTH" --json "{\\"upload_id\\": \\"$(basename $(cat upload))\\", \\"epsilon\\": 10, '
        '\\"name\\": \\"MNIST\\"}" $URL/v1/datasets | tee made | cut -c 1-120; '
        "grep -o 'ds_[0-9a-f]*' made | head -1 > dataset",
    ),
    (
        "Wait until the file was read, and look at its class names. What is said of it is for the owner alone.",
        'until curl -s -H "$AUTH" $URL/v1/datasets/$(cat dataset) | grep -q \'"state":"review"\'; do sleep 1; done; '
        'curl -s -H "$AUTH" $URL/v1/datasets/$(cat dataset)/validation | grep -o \'"review":.*\' | cut -c 1-200',
    ),
    (
        "Publish them and open the budget.",
        'curl -s -H "$AUTH" --json \'{"confirm_classes": true}\' $URL/v1/datasets/$(cat dataset):confirm '
        '| grep -o \'"state":"[a-z]*"\\|"class_names":[^]]*]\\|"epsilon_limit":[^,]*\'',
    ),
    (
        "What would a job cost? Then submit it.",
        f'SPEC=\'{SPEC}\'; BODY="{{\\"dataset_id\\": \\"$(cat dataset)\\", \\"spec\\": $SPEC}}"; '
        'curl -s -H "$AUTH" --json "$BODY" $URL/v1/plans | grep -o \'"epsilon_at_plan":[^,]*\'; '
        'curl -s -H "$AUTH" -H "Idempotency-Key: walkthrough" --json "$BODY" $URL/v1/jobs | tee made | cut -c 1-160; '
        "grep -o 'job_[0-9a-f]*' made | head -1 > job",
    ),
    (
        "Follow its events until it ends.",
        'curl -sN -H "$AUTH" -H "Accept: text/event-stream" $URL/v1/jobs/$(cat job)/events '
        '| grep -o \'"type":"[a-z.]*"\'',
    ),
    (
        "Download the synthetic dataset, ready to be published; check its sums and recompute ε.",
        'curl -s -H "$AUTH" -o digits.zip '
        '"$URL/v1/jobs/$(cat job)/dataset?format=parquet&license=CC-BY-4.0&title=Synthetic%20digits"; '
        " unzip -q -o digits.zip -d digits; cd digits; ls; sha256sum -c SHA256SUMS | tail -3; "
        "datalens verify privacy.json | head -8",
    ),
]
COMMANDS = [
    (
        "Upload class folders in a tar.gz: records that are known keep their account, so ε and δ are the account's.",
        "datalens datasets upload mnist-folders.tar.gz --confirm-classes --delta 5.546686556575636e-6 --name folders "
        "--json > made; "
        "grep -o 'ds_[0-9a-f]*' made | head -1 > dataset; datalens datasets show $(cat dataset)",
    ),
    (
        "Submit and follow. Progress and ε are printed on stderr.",
        "datalens jobs submit $(cat dataset) --epsilon 1 --method moments --images 1000 --no-evaluation --wait; "
        'echo "exit code $?"',
    ),
    (
        "Asking for more than the budget exits with 3, an unusable file with 2.",
        'datalens jobs submit $(cat dataset) --epsilon 11 --method moments; echo "exit code $?"; '
        'datalens datasets upload /etc/hostname --epsilon 1; echo "exit code $?"',
    ),
    (
        "Download, and delete the records with a receipt.",
        "JOB=$(datalens jobs list | grep $(cat dataset) | cut -d' ' -f1); "
        "datalens jobs download $JOB --bundle --format imagefolder --license CC0-1.0 --out folders.zip; "
        "datalens datasets delete $(cat dataset)",
    ),
]
PYTHON = """\
import asyncio, os
from pathlib import Path
from datalens_service import AsyncClient, Client

URL, KEY = os.environ["URL"], os.environ["KEY"]
SPEC = {"method": "moments", "epsilon": 0.5, "synthetic_images": 1000, "evaluation": {"enabled": False}}

with Client(URL, KEY) as client:
    dataset = client.upload_dataset(Path("mnist.npz"), epsilon=10)
    print([found.name for found in dataset.review.classes])
    dataset = client.confirm_dataset(dataset.id)  # these are public from now on
    job = client.submit(dataset.id, SPEC)
    for event in job.events():  # as they happen, over interruptions
        print(event.type, event.epsilon_spent)
    print(job.wait().state, job.download(Path("synthetic.parquet")).stat().st_size, "bytes")


async def another() -> None:
    async with AsyncClient(URL, KEY) as client:
        job = await client.submit(dataset.id, SPEC)
        job = await job.wait()
        print(job.state, job.privacy.epsilon_spent, (await client.dataset(dataset.id)).privacy.epsilon_remaining)


asyncio.run(another())
"""


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_uploads(folder)
        with serving(folder / "data") as (url, key):
            environment = {**os.environ, "URL": url, "KEY": key, "AUTH": f"Authorization: Bearer {key}"}
            environment |= {"DATALENS_URL": url, "DATALENS_API_KEY": key, "NO_COLOR": "1", "COLUMNS": "100"}
            environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
            parts = [*section("By curl", CURL, folder, environment)]
            parts += section("By command line", COMMANDS, folder, environment)
            (folder / "walkthrough.py").write_text(PYTHON)
            parts += ["## From Python", "", "```python", PYTHON.rstrip(), "```", ""]
            parts += answer("python walkthrough.py", folder, environment)
    facts = provenance()
    head = ["# Walkthrough", "", *(__doc__ or "").strip().splitlines()[4:], "", f"Commit {facts['commit']}.", ""]
    out.write_text("\n".join([*head, *parts]))


def write_uploads(folder: Path) -> None:
    """MNIST as IDX in a tar, as class folders in a tar.gz (1,000 images), and as NPZ."""
    (folder / "mnist.npz").write_bytes((DATA / "mnist.npz").read_bytes())
    with np.load(folder / "mnist.npz") as arrays:
        images, labels = next(arrays[name] for name in ("x_train", "train_images") if name in arrays), None
        labels = next(arrays[name] for name in ("y_train", "train_labels") if name in arrays).reshape(-1)
    idx = {"train-images-idx3-ubyte.gz": images, "train-labels-idx1-ubyte.gz": labels}
    packed = {
        name: gzip.compress(header(values) + values.astype(np.uint8).tobytes(), 1) for name, values in idx.items()
    }
    write_tar(folder / "mnist-idx.tar", packed, "w")
    chosen = zip(images[-1000:], labels[-1000:], strict=True)
    folders = {f"{label}/{number:04d}.png": png(image) for number, (image, label) in enumerate(chosen)}
    write_tar(folder / "mnist-folders.tar.gz", folders, "w:gz")


def header(values: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()


def png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, files: dict[str, bytes], mode: str) -> None:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def section(title: str, steps: list[tuple[str, str]], folder: Path, environment: dict[str, str]) -> list[str]:
    lines = [f"## {title}", ""]
    for says, command in steps:
        lines += [says, "", "```bash", command, "```", "", *answer(command, folder, environment)]
    return lines


def answer(command: str, folder: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout, flush=True)
    text = done.stdout.replace(environment["KEY"], "dlk_…").replace("\r", "").strip().splitlines()
    shown = text if len(text) <= LINES else [*text[: LINES // 2], "…", *text[-LINES // 2 :]]
    return ["```", *(line[:200].rstrip() for line in shown), "```", ""]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
