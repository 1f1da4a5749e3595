"""The documents' generated tables: python -m tests.support.readme writes them anew.

A table stands between <!-- name --> and <!-- /name -->; test_readme.py compares.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import PlatformCollector, ProcessCollector

from pgwake.observe.metrics import Metrics
from pgwake.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(  # in folders of ours: environments and caches begin with a dot
    path for start in ("", "[!.]*/**/") for path in CHECKOUT.glob(f"{start}*.md")
)

_SIGNATURE = re.compile(
    r"create or replace function pgwake\.(\w+)\((.*?)\)\nreturns (.*?)\nlanguage",
    re.DOTALL,
)
_COMMENT = re.compile(r"comment on function pgwake\.\w+ is\s+'(.*)';", re.DOTALL)


def settings_table() -> str:
    """Return a row a setting: variable, default, meaning."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "" if default is None or default == () else f"`{default}`"
        meaning = field.description or ""
        rows.append(f"| `PGWAKE_{name.upper()}` | {shown} | {meaning} |")
    return "\n".join(rows)


def metrics_table() -> str:
    """Return a row a metric: name, type, labels, meaning."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, labels, text in metrics():
        rows.append(f"| `{name}` | {kind} | {', '.join(labels)} | {text} |")
    return "\n".join(rows)


def metrics() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """What pgwake's own metrics are: name, type, labels, help."""
    for collector in Metrics([]).registry._collector_to_names:
        if isinstance(collector, ProcessCollector | PlatformCollector):
            continue
        for family in collector.describe():  # type: ignore[attr-defined]
            labels = getattr(family, "_labelnames", None)
            if labels is None:  # prometheus_client's own gauges don't tell there
                labels = collector._labelnames  # type: ignore[attr-defined]
            total = "_total" if family.type == "counter" else ""
            yield f"{family.name}{total}", family.type, labels, family.documentation


def function_files() -> list[Path]:
    """Return the files of sql/functions with a function in them, by its name."""
    files = (CHECKOUT / "sql" / "functions").glob("*/*.sql")
    return sorted((f for f in files if f.stem != "index"), key=lambda f: f.stem)


def sql_table() -> str:
    """Return a row a function that users call: signature, answer, meaning."""
    rows = ["| function | returns | what |", "| --- | --- | --- |"]
    for path in function_files():
        text = path.read_text()
        signature, comment = _SIGNATURE.search(text), _COMMENT.search(text)
        assert signature is not None, f"{path.name} has no function"
        assert comment is not None, f"{path.name} has no comment"
        name, arguments, answer = signature.groups()
        what = re.sub(r"'\s+'", "", comment[1].partition("';")[0]).replace("''", "'")
        if what.startswith("Internal:"):
            continue
        arguments = re.sub(r"\s*--.*", "", arguments)
        rows.append(
            f"| `{name}({' '.join(arguments.split())})` "
            f"| `{' '.join(answer.split())}` | {what} |"
        )
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "metrics": metrics_table,
    "sql": sql_table,
}


def anchors(text: str) -> set[str]:
    """Return what links into a document can name: its headings, as GitHub has it."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    }


def with_tables(text: str) -> str:
    """Return the text of a document with its tables made anew."""
    for name, table in TABLES.items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)",
            lambda match, table=table: match[1] + table() + match[2],  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text()))
