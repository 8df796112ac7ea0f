"""The least that could be in the service's place: one table, one row in, one row out, and static files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, ConfigDict
from sqlalchemy import JSON, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from starlette.staticfiles import StaticFiles


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON}  # noqa: RUF012 (read by SQLAlchemy when the class is made)


class Row(Base):
    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CreateRequest(BaseModel):
    dataset_id: str
    spec: dict[str, Any]


class Read(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: str
    dataset_id: str
    spec: dict[str, Any]
    created_at: datetime


def create_app() -> FastAPI:
    """PLAIN_DATABASE names the SQLite file, PLAIN_FILES the folder of static files."""
    engine = create_engine(f"sqlite:///{os.environ['PLAIN_DATABASE']}", connect_args={"timeout": 30})
    event.listen(engine, "connect", _as_durable_as_ours)
    Base.metadata.create_all(engine)
    app = FastAPI()
    sessions = sessionmaker(engine, expire_on_commit=False)

    @app.post("/jobs", status_code=201)
    def create(request: CreateRequest) -> Read:
        row = Row(id=uuid4().hex, **request.model_dump(), created_at=datetime.now(UTC))
        with sessions() as session, session.begin():
            session.add(row)
        return Read.model_validate(row)

    @app.get("/jobs/{job_id}")
    def read(job_id: str) -> Read:
        with sessions() as session:
            row = session.get(Row, job_id)
        if row is None:
            raise HTTPException(404)
        return Read.model_validate(row)

    app.mount("/files", StaticFiles(directory=os.environ["PLAIN_FILES"]))
    return app


def _as_durable_as_ours(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
