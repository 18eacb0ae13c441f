"""Log lines: one JSON object each, or text for people at a terminal. Extra fields of a record are kept."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(*, level: str, as_json: bool, stream: TextIO | None = None) -> None:
    """Send all records to `stream` (default stderr); replaces earlier handlers."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # its retries are told by our own errors
    logging.getLogger("watchdog").setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", …extra}`; time is RFC 3339 in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **extra(record),
        }
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, message, then `key=value` for the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback where there is one."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {key}={value}" for key, value in extra(record).items())
        line = f"{moment} {record.levelname:<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def extra(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave as `extra=`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
