"""Logs: human lines on a terminal, JSON otherwise; on standard error."""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from textwrap import indent
from typing import Any, TextIO

import structlog

from pgwake.observe.log_sink import Logger, LogSink
from pgwake.settings import Settings, env_file_is_open
from pgwake.tracing import tracing

FLUSH_SECONDS = 1.0  # that the last lines may wait for whoever reads the log
_LEVELS = logging.getLevelNamesMapping()
_PRODUCERS = "pgwake.produce"
_FIRST = ("timestamp", "level", "event")  # of a line of JSON
_CONTROL = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]}
_CONTROL[ord("\n")] = "\n"

_sink: LogSink | None = None


def configure(settings: Settings, *, warns: bool = False, **fields: Any) -> None:
    """Set up the log of this process.

    Args:
        settings: The format and the level.
        warns: Whether to warn of a .env that others can change.
        fields: What goes into every line. People do not see the worker's name where
            there is one worker process.
    """
    human = settings.log_format == "human" or (
        settings.log_format == "auto" and _is_terminal()
    )
    if human and settings.processes == 1:
        fields.pop("worker", None)
    level = _LEVELS[settings.log_level.upper()]

    def add_fields(_: Any, __: str, event: Any) -> Any:
        # The line of a job is not written in its span, and has its own.
        ids = {} if "trace_id" in event else tracing.ids()
        return {**event, **ids, **fields}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(
                fmt="%Y-%m-%d %H:%M:%S%z" if human else "iso", utc=not human
            ),
            structlog.processors.format_exc_info,
            add_fields,
            *([_for_people, _defuse, _human()] if human else [_json()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_logger_factory(),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _LibraryHandler(level)
    if warns and env_file_is_open():
        structlog.get_logger().warning(
            "everybody may write .env", remedy="chmod o-w .env, or start elsewhere"
        )
    logging.getLogger(_PRODUCERS).setLevel(level)


def flush() -> None:
    """Wait for lines that nobody has read yet, no longer than FLUSH_SECONDS."""
    if _sink is not None:
        _sink.flush(FLUSH_SECONDS)


def _logger_factory() -> Callable[..., Any]:
    """Return what writes a line at once, since processes share the stream."""
    global _sink  # noqa: PLW0603, a process has one log
    try:
        _sink = LogSink(sys.stderr.fileno(), _tell_dropped)
    except (AttributeError, OSError, ValueError):  # closed, or no file at all
        if sys.stderr is None:
            sys.stderr = _open_nothing()
        return structlog.WriteLoggerFactory(sys.stderr)
    logger = Logger(_sink)
    return lambda *_: logger


def _open_nothing() -> TextIO:
    """Open the standard streams that are closed: a pipe must not get their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    return os.fdopen(fd, "w")


def _tell_dropped(count: int) -> None:
    structlog.get_logger().warning("log lines dropped", count=count)


class _LibraryHandler(logging.Handler):
    """What libraries say, unless the application has set logging up: lines as ours.

    Libraries warn; what our own producers say below that is an event with fields.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            if record.name.startswith(_PRODUCERS) and isinstance(record.args, Mapping):
                event = str(record.msg).partition(":")[0]
                structlog.get_logger().log(record.levelno, event, **record.args)
            return
        structlog.get_logger().log(
            record.levelno,
            record.getMessage(),
            logger=record.name,
            exc_info=record.exc_info,
        )


def _json() -> Any:
    def serialise(event: dict[str, Any], **_: Any) -> str:
        first = {name: event[name] for name in _FIRST if name in event}
        return json.dumps(first | event, default=str)

    return structlog.processors.JSONRenderer(serializer=serialise)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _human() -> Any:
    return structlog.dev.ConsoleRenderer(
        colors=_is_terminal(), pad_event_to=28, sort_keys=False
    )


def _for_people(_: Any, __: str, event: Any) -> Any:
    """Show a traceback as lines below, and say how long a stop takes."""
    traceback = event.pop("traceback", None) or event.get("exception")
    if traceback is not None:
        # Indented, so that no line of it looks like one of the log.
        event["exception"] = indent(str(traceback), "    ", lambda _: True).rstrip()
    # So a library's message of several lines can't look like several of the log.
    event["event"] = str(event["event"]).replace("\n", "\n    ")
    if event["event"] == "worker stopping" and event["running"] and event["grace_s"]:
        jobs, seconds = event.pop("running"), event.pop("grace_s")
        event["event"] = (
            f"waiting up to {seconds:g} s for {jobs} job{'s' if jobs > 1 else ''}; "
            "Ctrl-C again to stop now"
        )
    return event


def _defuse(_: Any, __: str, event: Any) -> Any:
    """Show control characters, so that a kind or an error can't drive the terminal."""
    return {
        name: value.translate(_CONTROL) if isinstance(value, str) else value
        for name, value in event.items()
    }
