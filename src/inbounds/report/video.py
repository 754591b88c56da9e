"""How pictures become a film: frames in, an mp4 or a gif out, or nothing at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inbounds.errors import InboundsError, InvalidInputError, MissingDependencyError
from inbounds.storage.files import replacing


def write_video(frames: Iterable[NDArray[np.uint8]], path: str | os.PathLike[str], fps: float = 30.0) -> Path:
    """Write frames of shape (height, width, 3) to an `.mp4` or `.gif` file and return its path.

    Frames are taken one by one, so a generator of any length works. The file appears when it is complete: an
    error on the way leaves neither half a file nor a damaged older one.
    """
    target = Path(path)
    writers = {".mp4": _write_mp4, ".gif": _write_gif}
    write = writers.get(target.suffix.lower())
    if write is None:
        raise InvalidInputError(
            f"'{target.name}' ends in neither .mp4 nor .gif; name the file by the format it shall have."
        )
    if not (np.isfinite(fps) and fps > 0):
        raise InvalidInputError(f"a film of {fps} frames per second cannot be shown; give fps above 0.")
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise InvalidInputError(f"there are no frames for '{target.name}'; give at least one picture.")
    with replacing(target) as part:
        write(itertools.chain([first], checked), part, first.shape[:2], fps)
    return target


def _checked(frames: Iterable[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    shape: tuple[int, ...] | None = None
    for number, frame in enumerate(frames):
        array = np.asarray(frame)
        if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
            raise InvalidInputError(
                f"frame {number} is {array.dtype} of shape {array.shape}; "
                "give uint8 of shape (height, width, 3)."
            )
        if shape is not None and array.shape != shape:
            raise InvalidInputError(
                f"frame {number} has shape {array.shape}, the first one {shape}; give frames of one size."
            )
        shape = array.shape
        yield array


def _write_gif(frames: Iterator[NDArray[np.uint8]], path: Path, size: tuple[int, ...], fps: float) -> None:
    from PIL import Image

    # Flat colours of drawings stay flat, and the file small, without dithering.
    images = (Image.fromarray(frame).quantize(256, dither=Image.Dither.NONE) for frame in frames)
    first = next(images)
    # The format counts in hundredths of a second, and players slow down what is faster than two of them.
    duration = max(20, 10 * round(100 / fps))
    first.save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: Iterator[NDArray[np.uint8]], path: Path, size: tuple[int, ...], fps: float) -> None:
    height, width = size
    # Players expect colour at half the resolution, which takes even sizes: the last row or column is doubled.
    padding = ((0, height % 2), (0, width % 2), (0, 0))
    command = [
        *(_ffmpeg(), "-loglevel", "error", "-y"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width + width % 2}x{height + height % 2}"),
        *("-r", f"{fps:.6f}", "-i", "-", "-an", "-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p"),
        *("-movflags", "+faststart", "-f", "mp4", str(path)),
    ]
    # A file takes the messages, for a full pipe that nobody reads would stop the encoder.
    with tempfile.TemporaryFile() as messages:
        encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=messages, stderr=messages)
        assert encoder.stdin is not None
        try:
            for frame in frames:
                encoder.stdin.write(np.pad(frame, padding, mode="edge").tobytes())
        except BrokenPipeError:
            pass  # the encoder has stopped by itself; its messages say why
        finally:
            with contextlib.suppress(BrokenPipeError):
                encoder.stdin.close()
            status = encoder.wait()
        if status != 0:
            messages.seek(0)
            said = messages.read().decode(errors="replace").strip()
            raise InboundsError(
                f"ffmpeg could not write '{path.name}' (status {status}): {said}. "
                "Look for a full disk, or write a .gif, which needs no encoder."
            )


def _ffmpeg() -> str:
    """Return the path of the encoder, or say how to get it."""
    remedy = 'Install it with `pip install "inbounds[video]"`, or write a .gif, which needs nothing more.'
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except ImportError as missing:
        raise MissingDependencyError(f"an mp4 needs the package imageio-ffmpeg. {remedy}") from missing
    except RuntimeError as missing:
        raise MissingDependencyError(f"an mp4 needs ffmpeg, not found ({missing}). {remedy}") from missing
