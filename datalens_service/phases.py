"""What a job does now: its row, its events and the API say it by these words."""

from enum import StrEnum


class Phase(StrEnum):
    """The phases of a job in their order, and the one of an audit."""

    TRAINING = "training"
    """Releases are made, one after the other."""
    FITTING = "fitting"
    """Released sums are made into a model: samples, labels and networks are fitted to them."""
    DRAWING = "drawing"
    """Synthetic images are drawn."""
    PACKAGING = "packaging"
    """What was paid for is written to files."""
    EVALUATING = "evaluating"
    """The model is ready, and measured."""
    REPORTING = "reporting"
    """Files that state figures are written again."""
    ATTACKING = "attacking"
    """An audit trains and attacks."""
