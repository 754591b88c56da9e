"""`inbounds report`: run folders and result files become one web page, and figures for a paper."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

from inbounds.cli.terminal import Terminal
from inbounds.errors import ConfigurationError
from inbounds.storage.files import write_text
from inbounds.tasks.named_tasks import task_behind
from inbounds.training.summary import plural

FILM = "film"


@dataclasses.dataclass(frozen=True)
class Options:
    """Turn run folders, result files, or folders of either into one self-contained page.

    The page needs no network and no other file. `--figures` also writes the paper's figures as PDF, SVG and PNG;
    `--live` serves the page on this machine and follows runs in progress.
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...] [TASK]")
    ] = ()
    """Run folders, folders above them, or results (benchmarks/results/paper); behind them FILE.py:TASK or MODULE:TASK,
    if the task is your own."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The page; by default report.html in the first of the folders."""
    title: str | None = None
    """Heading of the page."""
    figures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Also write every figure here."""
    formats: tuple[str, ...] = ("pdf", "svg", "png")
    """Formats of the figures."""
    films: bool = False
    """Film one episode of every run folder (its first seed) and put it into the page."""
    task: Annotated[str | None, tyro.conf.arg(metavar="FILE.py:TASK|MODULE:TASK")] = None
    """The same as TASK behind the run folders: it is imported to film them and to play one episode."""
    live: bool = False
    """Serve the page on this machine and redraw it as numbers arrive; Ctrl-C ends it."""
    port: int = 8010
    """Port of the live page."""


def run(arguments: list[str]) -> int:
    """Write the page, or serve it."""
    given = tyro.cli(Options, prog="inbounds report", args=arguments)
    runs, own = task_behind(given.runs, given.task)
    options = dataclasses.replace(given, runs=runs, task=own)
    if not options.runs:
        raise ConfigurationError("a report of what? Give run folders or results: inbounds report runs/demo.")
    if options.live:
        return follow(options)
    from inbounds.experiments.collecting import read_results, trace_runs
    from inbounds.report.page import render_page
    from inbounds.tasks.named_tasks import named_task

    terminal = Terminal()
    places = [path.absolute() for path in options.runs]
    with contextlib.chdir("."):  # the task may change the working directory
        trace_runs(places, None if options.task is None else named_task(options.task), terminal.say)
    results = read_results(options.runs)
    if options.films:
        film_runs(options.runs, options.task)
    target = options.out or default_page(options.runs[0])
    write_text(target, render_page(collect(options)))
    counted = plural(len(results), "result")
    terminal.say(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB, {counted})")
    if options.figures is not None:
        from inbounds.report.figures import write_figures

        written = write_figures(results, options.figures, options.formats)
        terminal.say(f"wrote {len(written)} figures to {options.figures}")
    return 0


def default_page(first: Path) -> Path:
    """Return where the page goes if nobody says: into the folder that it is about."""
    return (first if first.is_dir() else first.parent) / "report.html"


def collect(options: Options) -> dict[str, Any]:
    """Read everything again and return the page's data."""
    from inbounds.experiments.collecting import read_results, references_near
    from inbounds.report.page import page_data

    title = options.title or f"Report on {', '.join(path.name or str(path) for path in options.runs)}"
    return page_data(
        read_results(options.runs), references_near(options.runs), title, read_films(options.runs)
    )


def read_films(paths: tuple[Path, ...]) -> dict[str, str]:
    """Return the films that lie in run folders, by the name of their result."""
    from inbounds.experiments.collecting import read_named_folders
    from inbounds.report.page import FILMS, film_as_text

    films = {}
    for name, folder in read_named_folders(paths):
        for ending in FILMS:
            if (text := film_as_text(folder / f"{FILM}{ending}")) is not None:
                films[name] = text
    return films


def film_runs(paths: tuple[Path, ...], task: str | None = None) -> None:
    """Film every run folder that has no film yet."""
    import importlib.util

    from inbounds.cli.render import run as render
    from inbounds.experiments.collecting import read_named_folders
    from inbounds.report.page import FILMS

    ending = ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"
    for _, folder in read_named_folders(paths):
        if not any((folder / f"{FILM}{known}").exists() for known in FILMS):
            where = [] if task is None else ["--task", task]
            with contextlib.chdir("."):
                render([str(folder), *where, "--steps", "200", "--out", str(folder / f"{FILM}{ending}")])


def follow(options: Options) -> int:
    """Serve the page until Ctrl-C."""
    from inbounds.report.page import make_server

    terminal, server = Terminal(), make_server(lambda: collect(options), options.port)
    terminal.say(
        f"follow {', '.join(map(str, options.runs))} at http://127.0.0.1:{server.server_address[1]} (Ctrl-C ends)"
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        terminal.say("ended.")
    finally:
        server.server_close()
    return 0
