"""What a client pushes: a job, or many."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from pgwake.http.fields import MAX_SECONDS, WHOLE, Instant, JobId, Key, Kind, Request

MAX_JOBS = 10_000

Priority = Annotated[int, Field(ge=-100, le=100), WHOLE]
Attempts = Annotated[int, Field(ge=1, le=10_000), WHOLE]
Webhook = Annotated[str, Field(pattern=r"^https?://[^\s/]", max_length=2048)]


class NewJob(Request):
    """A job that is to be pushed; what is left out, or null, has its default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "send_email", "payload": {"to": "a@example.org"}},
                {"kind": "sync", "unique_key": "customer 7", "delay_seconds": 60},
            ]
        }
    )

    kind: Kind
    payload: dict[str, Any] = Field({}, description="for the handler; at most 1 MiB")
    priority: Priority | None = Field(
        None, description="higher runs first; 0, the default: by policy"
    )
    run_at: Instant | None = Field(None, description="when it is due; default at once")
    delay_seconds: float | None = Field(
        None, ge=0, le=MAX_SECONDS, allow_inf_nan=False, description="instead of run_at"
    )
    max_attempts: Attempts | None = Field(
        None, description="until the dead letters; default by policy"
    )
    unique_key: Key | None = Field(None, description="unique with kind among live jobs")
    on_conflict: Literal["return", "replace", "raise"] | None = Field(
        None, description="if unique_key is taken; default return: the live job's id"
    )
    metadata: dict[str, Any] | None = Field(None, description="for people and tools")
    concurrency_key: Key | None = Field(
        None, description="jobs with one key wait for each other"
    )
    depends_on: Annotated[list[JobId], Field(max_length=10_000)] | None = Field(
        None, description="ids of jobs that have to complete before"
    )
    on_parent_failure: Literal["cancel", "run"] | None = Field(
        None, description="if one of those fails; default cancel"
    )
    webhook: Webhook | None = Field(None, description="a URL that hears how it ended")

    @model_validator(mode="after")
    def _check(self) -> "NewJob":
        if self.run_at is not None and self.delay_seconds is not None:
            raise ValueError(
                "run_at and delay_seconds are both given: give one of them"
            )
        return self

    def options(self, queue: str) -> dict[str, Any]:
        """Return all but payload and metadata, as enqueue_many takes it."""
        found = self.model_dump(
            exclude={"payload", "metadata", "run_at", "delay_seconds"},
            exclude_none=True,
        )
        if self.run_at is not None:
            found["run_at"] = self.run_at.isoformat()
        if self.delay_seconds is not None:
            found["delay"] = f"{self.delay_seconds:.6f} seconds"
        return {**found, "queue": queue}


class NewJobs(Request):
    """Jobs that are to be pushed, all or none."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=MAX_JOBS)]


def _form(value: Any) -> str:
    return "(many)" if isinstance(value, dict) and "jobs" in value else "(one)"


Push = Annotated[
    Annotated[NewJob, Tag("(one)")] | Annotated[NewJobs, Tag("(many)")],
    Discriminator(_form),
]
