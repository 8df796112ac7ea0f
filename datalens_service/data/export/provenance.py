"""What every exported file says about itself: whether it is synthetic, and the card."""

import json
from collections.abc import Mapping
from typing import Any, Final

TRAINED_ALGORITHMIC_MEDIA: Final = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
"""IPTC Digital Source Type of media made by a trained model."""

XMP: Final = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/">'
    f"<Iptc4xmpExt:DigitalSourceType>{TRAINED_ALGORITHMIC_MEDIA}</Iptc4xmpExt:DigitalSourceType>"
    '</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="r"?>'
)
"""XMP packet that says the same inside a PNG."""


def is_verbatim(card: Mapping[str, Any]) -> bool:
    """Whether images are public ones as they are, so that no model made them."""
    return bool((card.get("public_images") or {}).get("verbatim"))


def provenance(card: dict[str, Any]) -> str:
    """The card as canonical JSON, with `synthetic` and, if so, `digital_source_type` set whatever the card says."""
    made = {} if is_verbatim(card) else {"digital_source_type": TRAINED_ALGORITHMIC_MEDIA}
    statement = {**card, "synthetic": not is_verbatim(card), **made}
    return json.dumps(statement, sort_keys=True, ensure_ascii=False, allow_nan=False)
