"""Logs: human lines on a terminal, JSON otherwise; on standard error."""

import json
import logging
import sys
from typing import Any

import structlog

from pgwake.settings import Settings
from pgwake.tracing import tracing

_LEVELS = logging.getLevelNamesMapping()
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
_CONTROL[ord("\n")] = "\n"


def configure(settings: Settings, **fields: Any) -> None:
    """Set up the log of this process; the fields go into every line."""
    human = settings.log_format == "human" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )

    def add_fields(_: Any, __: str, event: Any) -> Any:
        # The line of a job is not written in its span, and has its own.
        ids = {} if "trace_id" in event else tracing.ids()
        return {**event, **ids, **fields}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(
                fmt="%H:%M:%S.%f" if human else "iso", utc=not human
            ),
            structlog.processors.format_exc_info,
            add_fields,
            *([_defuse, _human()] if human else [_json()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            _LEVELS[settings.log_level.upper()]
        ),
        # One write a line, since processes share the stream.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _Unheard(logging.WARNING)


class _Unheard(logging.Handler):
    """What libraries say, unless the application has set logging up: lines as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno,
            record.getMessage(),
            logger=record.name,
            exc_info=record.exc_info,
        )


def _json() -> Any:
    return structlog.processors.JSONRenderer(
        serializer=lambda event, **_: json.dumps(event, default=str)
    )


def _human() -> Any:
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), pad_event_to=28, sort_keys=False
    )


def _defuse(_: Any, __: str, event: Any) -> Any:
    """Show control characters, so that a kind or an error can't drive the terminal."""
    return {
        name: value.translate(_CONTROL) if isinstance(value, str) else value
        for name, value in event.items()
    }
