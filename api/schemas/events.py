"""What an event of a job looks like, in a list, in a stream and in a test."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from datalens_service.privacy.accounting import Charge, epsilon_of_charge, round_up
from datalens_service.store.jobs.events import Event, EventType
from datalens_service.store.jobs.jobs import JobState


class EventRead(BaseModel):
    """One thing that happened to a job, in public numbers."""

    id: int = Field(description="Number within the job, from 1 and without gaps; the `id` of the stream.")
    type: EventType
    state: JobState = Field(description="Of the job, after the event.")
    phase: str | None
    value: int
    maximum: int
    epsilon_spent: float = Field(description="ε at `delta` that the job had spent by then, rounded up.")
    delta: float
    created_at: datetime = Field(description="To the second; of progress, to the minute.")

    @classmethod
    def of(cls, event: Event, delta: float, slack: int = 0) -> Self:
        """What is shown of an event.

        Args:
            delta: At which ε is stated.
            slack: Of the job's plan, in 1e-18 of δ; as spent as soon as anything is.
        """
        charge = Charge(event.charged_units, slack if event.charged_units else 0)
        return cls(
            id=event.seq,
            type=event.type,
            state=JobState(event.state),
            phase=event.phase,
            value=event.value,
            maximum=event.maximum,
            epsilon_spent=round_up(epsilon_of_charge(charge, delta)),
            delta=delta,
            created_at=event.created_at,
        )


class EventPage(BaseModel):
    """A page of the events of a job, oldest first."""

    items: list[EventRead]
    has_more: bool
    next_cursor: int | None = Field(description="Value of `after` for the next page; null at the end for now.")
