"""Advice for a budget that does not cover a request: only what can help in its state."""


def advise(remaining: float, reserved: float) -> str:
    """Return what helps, as the end of a sentence.

    Args:
        remaining: ε that a new job may ask for.
        reserved: ε that is set aside for jobs that have not ended.
    """
    ways = []
    if remaining > 0:
        ways.append("ask for less")
    if reserved > 0:
        ways.append("wait for running jobs to return what they do not spend")
    return ", or ".join(ways) or "nothing of it is left for another job"
