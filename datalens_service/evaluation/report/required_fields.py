"""What a privacy report must state, F1 to F26, and where in the JSON it stands.

The list is the union of what NIST SP 800-226, "How to DP-fy ML" and the OpenDP registry of deployments ask for.
"""

from typing import Final, NamedTuple


class Required(NamedTuple):
    """One field: its name for people and the paths below the root that carry it."""

    title: str
    paths: tuple[str, ...]


REQUIRED_FIELDS: Final[dict[str, Required]] = {
    "F1": Required(
        "Product, version, commit, data set", ("product.name", "product.version", "product.commit", "dataset.id",
                                              "dataset.fingerprint"),
    ),
    "F2": Required("Flavour of privacy and who is trusted", ("privacy.setting", "privacy.trust")),
    "F3": Required(
        "Unit of protection and how it was declared",
        ("privacy.unit", "privacy.unit_declared_by", "privacy.records_per_unit"),
    ),
    "F4": Required(
        "Neighbouring relations",
        ("privacy.headline.relation", "privacy.headline.meaning", "privacy.replace_one.relation",
         "privacy.replace_one.meaning"),
    ),
    "F5": Required(
        "Public quantities", ("privacy.scope.public", "privacy.num_units", "dataset.public_schema", "method.plan")
    ),
    "F6": Required("μ, exact", ("privacy.headline.mu", "privacy.headline.units", "privacy.replace_one.mu")),
    "F7": Required(
        "ε at several δ, rounded up",
        ("privacy.delta", "privacy.headline.points", "privacy.headline.curve", "privacy.replace_one.points",
         "privacy.replace_one.curve"),
    ),
    "F8": Required("n·δ and the tier of ε", ("privacy.delta_times_units", "privacy.tier", "privacy.tier_meaning")),
    "F9": Required(
        "Largest success of any attack",
        ("privacy.headline.membership_advantage", "privacy.headline.true_positive_rate_at_0_1_percent",
         "privacy.headline.true_positive_rate_at_1_percent"),
    ),
    "F10": Required("Mechanisms with all parameters", ("privacy.mechanisms", "method.spec", "privacy.spend")),
    "F11": Required("Noise: distribution, sampler, source", ("privacy.noise",)),
    "F12": Required("Accountant and second opinion", ("privacy.accountant", "privacy.recomputation")),
    "F13": Required("Assumptions and whether they hold", ("privacy.assumptions",)),
    "F14": Required(
        "Accesses to private data, covered or not",
        ("privacy.data_accesses", "privacy.scope.covered", "privacy.scope.not_covered"),
    ),
    "F15": Required("What is released and what never is", ("privacy.scope.released", "privacy.scope.never_released")),
    "F16": Required("Spend over the lifetime of the data set", ("privacy.lifetime", "privacy.lifetime_note")),
    "F17": Required("Linked data sets", ("privacy.linked_datasets", "privacy.linked_note")),
    "F18": Required("Policy of the budget", ("privacy.policy", "privacy.epsilon_limit", "privacy.limit_units")),
    "F19": Required("Public data and pre-training", ("privacy.public_data",)),
    "F20": Required("Origin of the parameters", ("privacy.hyperparameters",)),
    "F21": Required("Figures, each with its status", ("measures", "measures_notice", "unavailable")),
    "F22": Required("Classes and groups", ("privacy.caveats", "per_class")),
    "F23": Required("Empirical audit", ("privacy.audit", "privacy.evidence")),
    "F24": Required("Known limits", ("privacy.limits",)),
    "F25": Required("Retention and deletion", ("privacy.retention",)),
    "F26": Required("Contact, date, seal, signature", ("contact", "date", "seal", "signature")),
}  # fmt: skip
