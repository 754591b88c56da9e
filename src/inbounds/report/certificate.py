"""A certificate as one small web page: no script, no picture, nothing that is loaded from elsewhere."""

from __future__ import annotations

import html
from typing import Any

from inbounds.auditing.audit import Certificate

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.4rem; } h1 b { padding: .1rem .6rem; border-radius: .3rem; color: #fff; }
.passed { background: #1a7f37; } .failed { background: #b3261e; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; vertical-align: top; }
th { font-weight: 600; width: 15rem; } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
code { font-size: .85em; } footer { color: #59636e; font-size: .85rem; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; }
 th, td { border-color: #30363d; } footer { color: #9198a1; } }
"""


def rows(certificate: Certificate) -> list[tuple[str, str]]:
    """Return what a certificate says, line by line, for terminals and pages alike."""
    found = [
        ("policy", f"{certificate.policy} ({certificate.kind})"),
        ("task", f"{certificate.task}: {certificate.constraint}"),
        (
            "steps",
            f"{certificate.steps:,} in {certificate.episodes:,} whole episodes, seed {certificate.seed}",
        ),
        ("violations, no tolerance", f"{certificate.violations:,}{_invalid(certificate)}"),
        ("worst excess, float64", f"{certificate.worst_excess:.6g}"),
        ("violation rate, 95 % bound", f"{certificate.rate_bound:.3g}"),
        ("acceptance", _or_unknown(certificate.acceptance, ".4f")),
        ("projected by the policy", _or_unknown(certificate.own_projections, ",")),
        ("interventions of the audit", f"{certificate.interventions:,}"),
        ("mean return", _or_unknown(certificate.mean_return, ".6g")),
        ("seconds per action", _latency(certificate.latency)),
    ]
    if certificate.worst is not None:
        worst = certificate.worst
        found.append(("worst action", f"step {worst.step}, episode {worst.episode}: {worst.reason}"))
    found += [("note", note) for note in certificate.notes]
    if certificate.digest is not None:
        found.append(("SHA-256 of the policy", certificate.digest))
    found.append(("SHA-256 of the constraint", certificate.constraint_digest))
    return found


def page(certificate: Certificate) -> str:
    """Return the whole page; every word of the policy's origin is escaped."""
    verdict = "passed" if certificate.is_passed else "failed"
    lines = "\n".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows(certificate)
    )
    made = certificate.provenance
    origin = html.escape(
        f"inbounds {made.get('inbounds')}, Python {made.get('python')}, {made.get('processor')}, "
        f"{made.get('started')}"
    )
    title = html.escape(f"Audit of {certificate.policy} on {certificate.task}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width"><title>{title}: {verdict}</title>\n'
        f"<style>{STYLE}</style></head><body>\n"
        f'<h1>{title} <b class="{verdict}">{verdict}</b></h1>\n<table>\n{lines}\n</table>\n'
        f"<footer>{origin}. An action is feasible if g(s, a) ≤ 0 in float64. The bound takes steps for independent; "
        f"it says nothing about states that were not visited.</footer>\n</body></html>\n"
    )


def _invalid(certificate: Certificate) -> str:
    return (
        f" ({certificate.invalid_actions:,} of them no finite action)" if certificate.invalid_actions else ""
    )


def _or_unknown(value: Any, form: str) -> str:
    return "not known" if value is None else format(value, form)


def _latency(latency: dict[str, float]) -> str:
    return ", ".join(f"{name} {value * 1e6:.0f} us" for name, value in latency.items())
