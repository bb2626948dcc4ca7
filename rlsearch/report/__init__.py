"""One self-contained HTML file per run: ``report(run_dir) -> path of report.html``."""

from rlsearch.report.page import report as report
