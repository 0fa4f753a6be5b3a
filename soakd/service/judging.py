"""From the end of a soak's load to its verdict in the journal: the same for the command line and the daemon."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from soakd.blocking import BlockingReader
from soakd.errors import JournalFullError
from soakd.journal import Journal, JournalReader
from soakd.model import Sample
from soakd.report.charts import Charts
from soakd.report.facts import Journal as JournalFacts
from soakd.report.model import Report
from soakd.report.outcome_metrics import outcome_samples
from soakd.soak.conclude import conclude, finish, write_report
from soakd.soak.run_facts import RunFacts
from soakd.soak.session import Seen

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """``ended`` is the outcome as samples; ``folder`` None where the report could not be written to the disk."""

    report: Report
    charts: Charts
    ended: tuple[Sample, ...]
    folder: Path | None


async def judge(journal: Journal, data_dir: Path, facts: RunFacts, seen: Seen) -> Judged:
    """A journal that is full, or a disk that is, takes nothing from the verdict but what could not be written."""
    if await _full(journal):
        seen = replace(seen, ending=replace(seen.ending, interrupted_by="journal full", journal_full=True))
    stats = journal.stats()
    dropped = {"queue full": stats.dropped} if stats.dropped else {}
    kept = JournalFacts(samples=stats.rows, size_bytes=stats.file_bytes, dropped=dropped)

    def read() -> tuple[Report, Charts]:
        with JournalReader(data_dir) as reader:
            return conclude(facts, seen, reader, kept)

    reading = BlockingReader("report")
    try:
        report, charts = await reading.call(read)
        ended = outcome_samples(report, seen.ended_ns)
        journal.add(ended, report.run_id)
        finish(journal, seen, report)
        await _full(journal)
        folder = await reading.call(lambda: _written(report, charts, data_dir))
    finally:
        reading.close()
    return Judged(report, charts, ended, folder)


async def _full(journal: Journal) -> bool:
    try:
        await journal.flush()
    except JournalFullError as error:
        log.error("the journal is full", why=str(error))
        return True
    return False


def _written(report: Report, charts: Charts, data_dir: Path) -> Path | None:
    try:
        return write_report(report, charts, data_dir)
    except OSError as error:
        log.error("the report could not be written", path=str(error.filename), why=error.strerror)
        return None
