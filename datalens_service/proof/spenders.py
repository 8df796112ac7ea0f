"""The key or person that submitted each job of an account, and so spent from it. For the owner alone."""

from datalens_service.base.fields import Finite


class Actor(Finite):
    """A key, or a person who signs in elsewhere. "local" is a command on the machine of the service.

    Attributes:
        name: Name that the key or person has now; None of commands, and where it is not known any more.
    """

    id: str
    name: str | None = None


class Spender(Finite):
    """A job that spent or reserved, with its submitter; None where that was not recorded."""

    job_id: str
    submitted_by: Actor | None
