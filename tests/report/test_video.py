"""What `write_video` promises about the film, the file and its errors."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from inbounds.cli.render import write_video
from inbounds.errors import InboundsError, InvalidInputError, MissingDependencyError


def frames_of(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Return pictures that differ strongly from one another, so that their order can be read back."""
    shades = np.linspace(20, 235, count).astype(np.uint8)
    return [np.full((height, width, 3), shade, dtype=np.uint8) for shade in shades]


def read_mp4(path) -> tuple[float, np.ndarray]:
    """Return the rate and the frames (number, height, width, 3) that ffmpeg finds in a file."""
    import imageio_ffmpeg

    arguments = ["-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), *arguments], capture_output=True, check=True)
    described = re.search(r"Video: h264.* (\d+)x(\d+).* ([\d.]+) fps", done.stderr.decode())
    width, height = int(described[1]), int(described[2])
    return float(described[3]), np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def test_an_mp4_holds_every_frame_in_order_at_the_given_rate(tmp_path):
    frames = frames_of(12)
    rate, read = read_mp4(write_video(frames, tmp_path / "film.mp4", fps=10))
    assert rate == 10
    assert read.shape == (12, 48, 64, 3)
    for written, back in zip(frames, read, strict=True):
        assert abs(float(back.mean()) - float(written.mean())) < 6


def test_a_gif_holds_every_frame_in_order_at_the_given_rate(tmp_path):
    frames = frames_of(7)
    with Image.open(write_video(frames, tmp_path / "film.gif", fps=10)) as film:
        assert film.n_frames == 7
        assert film.info["duration"] == 100
        assert film.info["loop"] == 0
        for number, written in enumerate(frames):
            film.seek(number)
            assert abs(np.asarray(film.convert("RGB")).mean() - written.mean()) < 2


def test_odd_sizes_are_padded_to_even_ones_in_an_mp4(tmp_path):
    _, read = read_mp4(write_video(frames_of(3, height=51, width=67), tmp_path / "film.mp4", fps=5))
    assert read.shape == (3, 52, 68, 3)


def test_frames_may_come_from_a_generator_and_folders_are_made(tmp_path):
    path = write_video((frame for frame in frames_of(4)), tmp_path / "new" / "film.gif", fps=5)
    assert path == tmp_path / "new" / "film.gif"
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("frames", "name", "fps", "message"),
    [
        (frames_of(2), "film.avi", 10, "neither .mp4 nor .gif"),
        (frames_of(2), "film", 10, "neither .mp4 nor .gif"),
        ([], "film.gif", 10, "without frames"),
        (frames_of(2), "film.gif", 0, "fps above 0"),
        (frames_of(2), "film.gif", float("nan"), "fps above 0"),
        ([np.zeros((4, 4), np.uint8)], "film.gif", 10, "frame 0"),
        ([np.zeros((4, 4, 3))], "film.gif", 10, "uint8"),
        ([*frames_of(2), np.zeros((9, 9, 3), np.uint8)], "film.gif", 10, "frame 2 has shape"),
        ([*frames_of(2), np.zeros((9, 9, 3), np.uint8)], "film.mp4", 10, "frame 2 has shape"),
    ],
)
def test_what_cannot_be_a_film_is_refused_and_leaves_no_file(tmp_path, frames, name, fps, message):
    with pytest.raises(InvalidInputError, match=message):
        write_video(frames, tmp_path / name, fps=fps)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_on_the_way_keeps_the_older_file(tmp_path):
    path = write_video(frames_of(2), tmp_path / "film.gif", fps=5)
    older = path.read_bytes()
    with pytest.raises(InvalidInputError):
        write_video([*frames_of(3), np.zeros((1, 1, 3), np.uint8)], path, fps=5)
    assert path.read_bytes() == older


@pytest.mark.parametrize("what", ["package", "binary"])
def test_without_ffmpeg_an_mp4_names_the_remedy_and_a_gif_still_works(tmp_path, monkeypatch, what):
    if what == "package":
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    else:
        import imageio_ffmpeg

        def absent() -> str:
            raise RuntimeError("No ffmpeg exe could be found.")

        monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", absent)
    with pytest.raises(MissingDependencyError, match=r"inbounds\[video\].*\.gif"):
        write_video(frames_of(2), tmp_path / "film.mp4", fps=5)
    assert write_video(frames_of(2), tmp_path / "film.gif", fps=5).exists()


def test_an_encoder_that_fails_is_quoted_and_leaves_no_file(tmp_path, monkeypatch):
    import imageio_ffmpeg

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: sys.executable)  # knows none of the options
    with pytest.raises(InboundsError, match=r"(?s)ffmpeg could not write .*status.*\.gif"):
        write_video(frames_of(400), tmp_path / "film.mp4", fps=5)
    assert list(tmp_path.iterdir()) == []
