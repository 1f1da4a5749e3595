"""Every error that pgwake raises, and the exit codes that stand for them."""

EXIT_USAGE = 2
EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: starting again would not help
EXIT_BUSY = 75  # EX_TEMPFAIL: not yet; the same again may do
EXIT_START = 69  # EX_UNAVAILABLE: handlers can't be imported, or a resource not opened
EXIT_HUNG = 70  # EX_SOFTWARE: a handler could not be stopped

# What to do where the database denies a right, SQLSTATE 42501.
ROLES_HINT = (
    "Connect as a member of pgwake_producer to enqueue, of pgwake_worker to run jobs "
    "and look, or of pgwake_admin to decide: `pgwake init --roles` makes these roles."
)
DOCTOR_HINT = "`pgwake doctor` says what to type."


class PgwakeError(Exception):
    """The base of every error that pgwake raises."""


class ConfigurationError(PgwakeError):
    """What was asked for can't work as it is set up; the message says what to do."""


class UnusableUrlError(ConfigurationError, ConnectionError):
    """The database can't be reached as its URL says; the message says what to do."""


class EmbeddedServerError(PgwakeError):
    """A program of the embedded PostgreSQL failed; its log's last lines follow."""


class ResourceError(PgwakeError):
    """What a worker shares could not be opened, or closed; the message says what."""


class LeaseLostError(PgwakeError):
    """The job is somebody else's by now; what its handler wrote was rolled back."""


class InvalidPayloadError(PgwakeError):
    """A job's payload does not fit its handler's signature; the message says where."""


class InvalidScheduleError(PgwakeError, ValueError):
    """A cron expression or a time zone can't be read; the message says why."""


class InvalidValueError(PgwakeError, ValueError):
    """A value can't be stored as JSON in PostgreSQL; the message names why."""


class UnreadableValueError(PgwakeError, ValueError):
    """The database has JSON that Python does not read; the message says why.

    Nested too deep, or with a number of more than 4,300 digits.

    Attributes:
        text: The JSON, as text.
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class InvalidArgumentError(PgwakeError, ValueError):
    """An argument can't be meant, or the database refuses it; says what to do."""


class NoSuchJobError(PgwakeError, LookupError):
    """There is no job with this id, or it is gone after its retention."""


class DuplicateJobError(PgwakeError):
    """A live job has the unique key.

    Attributes:
        job_id: That job's id; None where the database did not say (COPY).
    """

    def __init__(self, message: str, job_id: int | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id


class QueueFullError(PgwakeError):
    """A queue has no room for more jobs (max_pending): nothing has been added."""


class WaitTimeoutError(PgwakeError, TimeoutError):
    """What somebody would wait for, a job's end or an event, has not come in time."""
