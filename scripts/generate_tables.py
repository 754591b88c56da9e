"""Writes the tables of README and documentation from benchmarks/results; `--check` fails where one is stale.

A table stands between two comments of its file, `<!-- table: NAME -->` and `<!-- end of table -->`; everything
between them is replaced. Run it after results were added: `python scripts/generate_tables.py`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from inbounds.benchmark.collecting import REFERENCES, is_result_file, read_references
from inbounds.benchmark.results import Result, load_result
from inbounds.benchmark.suite import SUITES
from inbounds.report.tables import headline_table, reproduction_table, suite_table, violations_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    """Rewrite every marked table, or only say which ones are stale."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is stale")
    check = parser.parse_args().check
    results = [load_result(path) for path in sorted(RESULTS.glob("*/*.json")) if is_result_file(path)]
    stale = []
    for path in FILES:
        before = path.read_text(encoding="utf-8")
        after = MARKED.sub(
            lambda found: found.group(1) + table(found.group(2), results) + "\n" + found.group(3), before
        )
        if after != before:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(after, encoding="utf-8")
    if check and stale:
        sys.exit(f"stale tables in {', '.join(map(str, stale))}: run `python scripts/generate_tables.py`.")
    print(
        f"{len(results)} results; "
        + (f"rewrote {', '.join(map(str, stale))}" if stale else "every table is up to date")
    )


def table(name: str, results: list[Result]) -> str:
    """Return the table of that name."""
    references = read_references(RESULTS / REFERENCES) if (RESULTS / REFERENCES).exists() else {}
    if name == "headline":
        return headline_table(results, references)
    if name == "reproduction":
        return reproduction_table(results)
    if name == "violations":
        return violations_table(results)
    if name in SUITES:
        return suite_table(results, name)
    sys.exit(
        f"no table is called '{name}'; known are headline, reproduction, violations and the suites {', '.join(SUITES)}."
    )


if __name__ == "__main__":
    main()
