"""A released model as one zip, ready to be published: its files, card, licence, reports, proof and checksums.

README.md  classifier.safetensors  classifier.onnx  card.json  privacy.json  report.html  report.json  LICENSE
SHA256SUMS             of every other file
SHA256SUMS.sig.json    signature of the sums, so of every file
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from datalens_service.data.export.fixed_zip import fixed_entry
from datalens_service.data.export.licence import licence_text
from datalens_service.data.export.release_archive import SUMS, SUMS_SIGNATURE, sums_document
from datalens_service.signatures import SigningKey


def write_model_archive(path: Path, files: Mapping[str, bytes], spdx: str, key: SigningKey) -> None:
    """Write the zip; equal input gives equal bytes.

    Args:
        path: File to create or replace.
        files: Public files by name, `privacy.json`, the proof of the job, among them.
        spdx: Key of `LICENCES`.
        key: Of the installation.
    """
    content = {**files, "LICENSE": licence_text(spdx).encode()}
    lines = "".join(f"{hashlib.sha256(content[name]).hexdigest()}  {name}\n" for name in sorted(content)).encode()
    signature = json.dumps(key.sign(sums_document(lines)), ensure_ascii=False, indent=2, allow_nan=False).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, one in sorted({**content, SUMS: lines, SUMS_SIGNATURE: signature}.items()):
            archive.writestr(fixed_entry(name, zipfile.ZIP_DEFLATED), one)
