"""Rewrites the README for an index of packages, where no file lies beside it; hatchling loads this when it builds.

Links to files of the repository and pictures become absolute where `Source` of `project.urls` in pyproject.toml says
where the repository is published. Until then they become their text: a package has no link that leads nowhere.
"""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<target>[^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """Sets `readme` of the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read and rewrite README.md."""
        source = metadata.get("urls", {}).get("Source")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": rewrite_links(text, source, f"v{metadata['version']}"),
        }


def rewrite_links(text: str, source: str | None, revision: str) -> str:
    """Return a text in Markdown without relative targets.

    Args:
        text: A page that lies in the root of the repository.
        source: Address of the repository, as GitHub, GitLab and Gitea have it; None if it has none.
        revision: Tag or commit whose files are shown.
    """

    def rewrite(link: re.Match[str]) -> str:
        if source is None:
            return link["text"]
        view = "raw" if link["picture"] else "blob"
        target = f"{source.rstrip('/')}/{view}/{revision}/{link['target'].removeprefix('./')}"
        return f"{link['picture']}[{link['text']}]({target})"

    # Fenced code is every second part.
    parts = _FENCE.split(text)
    return "".join(part if number % 2 else _LINK.sub(rewrite, part) for number, part in enumerate(parts))
