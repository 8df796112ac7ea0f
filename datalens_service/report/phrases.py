"""The fixed sentences of a report.

"Guarantee" means the privacy budget and nothing else. No figure for ε stands without its δ.
"""

from typing import Final

from datalens_service.data.export.licence import OF_PUBLIC_IMAGES

SETTING: Final = (
    "Central differential privacy. The operator of this service holds the raw images and is trusted with them; "
    "recipients of releases need not be trusted."
)

PLUGIN: Final = (
    "The method is a plug-in of another package, which the operator installed. What it releases goes through the "
    "mechanisms listed here and is charged like every release. That a unit moves nothing of what other units "
    "contribute is that package's claim: the tests of this product do not cover it."
)

RELATIONS: Final[dict[str, str]] = {
    "zero_out": "adding or removing one {unit} (its place is left empty; the number of {unit}s is public)",
    "replace_one": "replacing one {unit} by any other",
}

_TIER: Final = (
    "A common scale (Ponomareva et al. 2023, “How to DP-fy ML”, section 5.2) sorts ε into three tiers: up "
    "to 1, up to 10, and above. This is tier {tier}."
)
TIERS: Final[dict[str, str]] = {
    "tier_1": _TIER.format(tier=1),
    "tier_2": _TIER.format(tier=2) + " The success of attackers varies widely within that tier; the bound above is "
    "what counts.",
    "tier_3": _TIER.format(tier=3) + " Nobody should claim formal privacy protection; the budget still bounds what is "
    "released.",
}

ACCOUNTANT: Final = (
    "Closed form for Gaussian mechanisms: μ² adds up over all releases, however later ones depend on earlier ones, "
    "and δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ). The account is kept in whole units of 10⁻¹⁵ μ²; costs are rounded "
    "up, limits down. No amplification by sampling is claimed. From the units listed here anybody can recompute ε."
)

SAMPLED_ACCOUNTANT: Final = (
    "Closed form for Gaussian mechanisms: μ² adds up over all releases, however later ones depend on earlier ones, "
    "and δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ). Sampled batches are charged as one Gaussian release that their "
    "privacy loss distribution stays below, up to a slack; ε is read off at δ less all slack. Both are kept in whole "
    "units, 10⁻¹⁵ of μ² and 10⁻¹⁸ of δ; costs are rounded up, limits down. Anybody can recompute both and ε."
)

NOISE: Final = (
    "Discrete Gaussian on integers, drawn exactly in integer arithmetic (Canonne, Kamath & Steinke 2020) from the "
    "operating system's entropy, fresh for every coordinate, without a seed. A release costs Δ²/(σ² − 9) of μ²."
)

DIRECTIONS_ACCOUNTANT: Final = (
    "Closed form for Gaussian mechanisms: μ² adds up over all releases, however later ones depend on earlier ones, "
    "and δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ). A noisy direction of concentration κ in d dimensions tells no more "
    "than a Gaussian release of μ = κ/√(d − 3), or twice that when a unit is replaced; batches are a partition, so a "
    "pass costs as much as one batch. The account is kept in whole units of 10⁻¹⁵ μ²; costs are rounded up, limits "
    "down. From the units listed here anybody can recompute ε."
)

DIRECTIONS_NOISE: Final = (
    "Von Mises-Fisher noise on the direction of every unit's gradient by itself, drawn in float64 (Wood 1994) from the "
    "operating system's entropy, without a seed. The guarantee assumes real arithmetic: unlike discrete noise, this "
    "sampler is not exact on a computer. With the listed σ a release costs Δ²/(σ² − 9) of μ², which covers it."
)

EVIDENCE: Final = "No empirical attack had been asked for when this report was written."

ATTACKED: Final = (
    "The owner had asked for empirical attacks when this report was written; their figures lie with the owner. They "
    "bound the privacy loss from below and do not replace the proof."
)

PUBLIC: Final = (
    "The number of {unit}s, the names of the classes and the shape of the images, which the owner made public.",
    "The parameters of the method and the plan of releases; both are fixed before a private image is read.",
    "No public images and no pre-trained weights were used in training.",
)

BESIDE_PUBLIC: Final = (
    "Public images were used beside the private ones: {source}, with the classes {classes}, SHA-256 {sha256}. "
    f"{OF_PUBLIC_IMAGES}"
)

HELD_PUBLIC: Final = (
    " The released model holds some of them unchanged and draws others in their place: who gets the model gets these."
)

PUBLIC_ENCODER: Final = (
    "Images were seen through the public encoder {described}, which was trained on other images. The guarantee does "
    "not cover those."
)

PUBLIC_GENERATOR: Final = (
    "Images were made by the generator {name} of {distribution} {version}, which the operator installed. Private "
    "images said which of them to keep. The guarantee does not cover what it was trained on."
)

HASHED_GENERATOR: Final = " SHA-256 of its folder: {sha256}."

RENDERED: Final = (
    "Images were drawn by the generator {name} of {distribution} {version} by rules alone: no images and no weights "
    "went into it. Private images said which of them to keep."
)

LABELLED_PUBLIC: Final = (
    "The released images are public ones, unchanged, or cropped and mirrored: {source}, with the classes "
    "{classes}, SHA-256 {sha256}, or some "
    f"of them. Only their new labels come from private images. {OF_PUBLIC_IMAGES}"
)

GROUPED: Final = (
    "At most {records} training images belong to one {unit}, as the owner declared. The guarantee is about all of "
    "them together.",
)

GROUPS_IGNORED: Final = (
    "People with several records: the upload named whom each record belongs to, and its owner chose to protect single "
    "records. The loss of a person with k records is bounded by the loss of all k together.",
)

COVERED: Final = (
    "Training: everything the generator learned from private images came out of the releases listed here. Each was "
    "charged to the budget before its noise was drawn.",
    "Everything computed from those releases alone: the generator, any number of images drawn from it, and figures "
    "about those images.",
    "Several jobs on the same data set: their charges add up in one account, which is never reset.",
)

NOT_COVERED: Final = (
    "Near-duplicates. The unit of protection is one {unit}. Somebody who counts as several, whose images resemble "
    "each other closely, or who has images in another data set, is protected less.",
    "The choice of parameters. If they were chosen by looking at results on the private images, that look was not "
    "charged.",
    "Test images that were not declared public. Figures measured on them are for the owner only and are not charged.",
    "Side channels: running time, memory and hardware of the machine that trained.",
    "Facts about everybody. The synthetic images show something of what classes look like, and conclusions drawn "
    "from that may concern people who took no part.",
    "Fairness between groups. Noise hides small groups first: rare classes and unusual images come out worse.",
)

RELEASED: Final = (
    "The generator.",
    "Images drawn from it.",
    "The card, and this report in its releasable form.",
)

NEVER_RELEASED: Final = (
    "Private images, their labels and their file names.",
    "Teachers, where the method has them: which {unit} went to which, what they learned, how each voted.",
    "Sums before the noise, losses, class counts, logs.",
    "Figures measured on private images, unless noise was added and paid for.",
)

RETENTION: Final = (
    "The raw images stay with the service, or in the folder of a run without one, until the owner or the retention of "
    "the service deletes them. In a service, spending stays on the account after that."
)

LIFETIME: Final = (
    "All jobs on these records, also those of deleted data sets, as if they were one release. Losses are rounded up, "
    "what remains is rounded down."
)

NO_ACCOUNT: Final = "No account was kept of this run."

LIFETIME_WITHHELD: Final = (
    "The lifetime budget of these records is in the owner's copy. If you hold several releases from the same "
    "records, add up their μ²; μ of each job is in its proof, privacy.json."
)

FINGERPRINT: Final = (
    "hash of the first entry of the account that these records opened; records have one account for ever, and a hash "
    "of their content is not released"
)

LINKED: Final = "Uploads that share an image share one account; the lifetime figures count their losses together."

WITHHELD: Final = (
    "Figures measured on the owner's private images, if there are any, are left out of this copy: they are not "
    "covered by the guarantee."
)

OWNER_NOTICE: Final = (
    "For the owner only. These figures were computed on private images and are not covered by the guarantee. "
    "Do not pass them on."
)


def about(sentences: tuple[str, ...], unit: str, records: int = 1) -> tuple[str, ...]:
    """Fill in the owner's word for one privacy unit, and the most images it may have."""
    return tuple(sentence.replace("{unit}", unit).replace("{records}", f"{records:,}") for sentence in sentences)


INDIVIDUAL: Final = (
    "Realised individual ε of all units, as one noisy histogram that was charged like any release; mean and quantiles "
    "follow from it alone. They describe the actual cost of training. The guarantee of every unit is the ε of the "
    "job."
)
