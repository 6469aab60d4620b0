"""What stands in an event, as an array: one form for each kind of value, whichever way it was written.

================  ==================================================================================================
kind              array
================  ==================================================================================================
scalar            float64, no dimensions
histogram         float64 (buckets, 3): left edge, right edge, count
image             uint8 or uint16 (height, width, channels); several of one size: (images, height, width, channels)
audio             samples (frames, channels) of PCM sound; the encoded bytes as uint8 of any other
text              str, in the shape that was written
hparams           str: JSON
pr_curve, tensor  as written
================  ==================================================================================================
"""

from __future__ import annotations

import io
import json
import wave
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import CorruptDataError, UnsupportedDataError

#: Pixels of one image. More is a lie, or nothing to look at in a notebook.
_MAX_PIXELS = 1 << 28
_PNG = b"\x89PNG\r\n\x1a\n"


def value_of(event: _core.Event, kind: str) -> NDArray[Any]:
    """The value of an event of this kind: a writable array with memory of its own."""
    if kind == "hparams":
        return np.array(json.dumps(_core.hparams(event.plugin_content)))
    buckets = event.buckets
    if buckets is not None:
        return buckets
    found = event.value
    if kind == "image":
        return _images([found["encoded"]] if isinstance(found, dict) else _encoded(found))
    if kind == "audio":
        encoded = [found["encoded"]] if isinstance(found, dict) else _pairs(found)
        return _alike([sound(one) for one in encoded])
    if isinstance(found, np.ndarray) and found.dtype == object:
        return _text(found)
    return np.asarray(found)


def image(encoded: bytes) -> NDArray[Any]:
    """An encoded image: PNG as it is, with its alpha and 16 bits; JPEG, GIF and others through Pillow."""
    if encoded.startswith(_PNG):
        return _core.decode_png(encoded, _MAX_PIXELS)
    try:
        from PIL import Image, ImageSequence, UnidentifiedImageError
    except ImportError:
        raise UnsupportedDataError(
            "This image is no PNG; others need Pillow: pip install 'smdwidgets[tensorboard]'."
        ) from None
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            if opened.width * opened.height * getattr(opened, "n_frames", 1) > _MAX_PIXELS:
                raise UnsupportedDataError(f"An image of {opened.width} × {opened.height} pixels is not decoded.")
            frames = [_pixels(frame) for frame in ImageSequence.Iterator(opened)]
    except UnidentifiedImageError:
        raise UnsupportedDataError(f"An image in a format that is not known (it begins {encoded[:8]!r}).") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CorruptDataError(f"An image that can't be decoded: {error}") from None
    return _alike(frames)


def _pixels(frame: Any) -> NDArray[Any]:
    if frame.mode == "P":
        frame = frame.convert("RGBA" if "transparency" in frame.info else "RGB")
    elif frame.mode == "1":
        frame = frame.convert("L")
    elif frame.mode not in ("L", "LA", "RGB", "RGBA", "I;16", "I", "F"):
        frame = frame.convert("RGB")
    pixels = np.array(frame)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def sound(encoded: bytes) -> NDArray[Any]:
    """Samples of a WAV file; the bytes of any other sound."""
    # Copies: bytes are immutable, and CPython shares those of length one.
    try:
        with wave.open(io.BytesIO(encoded)) as opened:
            width, channels = opened.getsampwidth(), opened.getnchannels()
            data = opened.readframes(opened.getnframes())
    except (wave.Error, EOFError):
        return np.frombuffer(encoded, np.uint8).copy()
    if width not in (1, 2, 4) or len(data) % (width * channels):
        return np.frombuffer(encoded, np.uint8).copy()
    return np.frombuffer(data, {1: "u1", 2: "<i2", 4: "<i4"}[width]).reshape(-1, channels).copy()


def _encoded(strings: NDArray[Any]) -> list[bytes]:
    """Images as TensorFlow 2 writes them: width and height as text, then each image."""
    flat = strings.reshape(-1).tolist()
    if len(flat) < 2 or not all(isinstance(one, bytes) for one in flat):
        raise CorruptDataError("A tensor of images that holds neither their size nor any image.")
    return flat[2:]


def _pairs(strings: NDArray[Any]) -> list[bytes]:
    """Sounds as TensorFlow 2 writes them: each with a label."""
    if strings.dtype != object:
        raise CorruptDataError("A tensor of sounds that holds no encoded sound.")
    sounds = strings[:, 0] if strings.ndim == 2 and strings.shape[1] else strings.reshape(-1)
    return [bytes(one) for one in sounds]


def _images(encoded: list[bytes]) -> NDArray[Any]:
    return _alike([image(one) for one in encoded])


def _alike(values: list[NDArray[Any]]) -> NDArray[Any]:
    """One array of several; a single one is itself."""
    if len(values) == 1:
        return values[0]
    if len({value.shape for value in values}) <= 1:
        return np.stack(values) if values else np.empty((0,), np.uint8)
    several = np.empty(len(values), dtype=object)
    several[:] = values
    return several


def _text(strings: NDArray[Any]) -> NDArray[Any]:
    """Text where it is that; bytes as they are."""
    try:
        texts = [one.decode() for one in strings.reshape(-1)]
    except UnicodeDecodeError:
        return strings
    return np.array(texts, dtype=np.str_).reshape(strings.shape)
