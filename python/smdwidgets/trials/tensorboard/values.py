"""Conversion of event values to arrays, independent of the writer.

================  ==================================================================================================
kind              array
================  ==================================================================================================
scalar            float64, no dimensions
histogram         float64 (buckets, 3): left edge, right edge, count
image             uint8 or uint16 (height, width, channels); several of one size: (images, height, width, channels)
audio             PCM: samples (frames, channels); other encodings: the bytes as uint8
text              str, in the written shape
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

#: Maximum pixels of an image. Larger sizes are most likely invalid.
_MAX_PIXELS = 1 << 28
_PNG = b"\x89PNG\r\n\x1a\n"


def value_of(event: _core.Event, kind: str) -> NDArray[Any]:
    """Return the value of an event as a writable array that shares no memory."""
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
    """Decode an image: PNG natively, with alpha and 16 bits; others with Pillow."""
    if encoded.startswith(_PNG):
        return _core.decode_png(encoded, _MAX_PIXELS)
    try:
        from PIL import Image, ImageSequence, UnidentifiedImageError
    except ImportError:
        raise UnsupportedDataError(
            "cannot decode image: formats other than PNG need Pillow; run: pip install 'smdwidgets[tensorboard]'"
        ) from None
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            if opened.width * opened.height * getattr(opened, "n_frames", 1) > _MAX_PIXELS:
                raise UnsupportedDataError(
                    f"image of {opened.width} × {opened.height} pixels exceeds the limit of {_MAX_PIXELS:,} pixels"
                )
            frames = [_pixels(frame) for frame in ImageSequence.Iterator(opened)]
    except UnidentifiedImageError:
        raise UnsupportedDataError(f"unknown image format: the data starts with {encoded[:8]!r}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CorruptDataError(f"cannot decode image: {error}") from None
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
    """Return the samples of a WAV file, or the bytes of other audio formats."""
    # Copy, since bytes are immutable and CPython shares those of length one.
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
    """Return the images of a TensorFlow 2 tensor: width and height, then each image."""
    flat = strings.reshape(-1).tolist()
    if len(flat) < 2 or not all(isinstance(one, bytes) for one in flat):
        raise CorruptDataError("image tensor must contain width, height and encoded images as strings")
    return flat[2:]


def _pairs(strings: NDArray[Any]) -> list[bytes]:
    """Return the clips of a TensorFlow 2 audio tensor, without their labels."""
    if strings.dtype != object:
        raise CorruptDataError("audio tensor must contain encoded audio as strings")
    sounds = strings[:, 0] if strings.ndim == 2 and strings.shape[1] else strings.reshape(-1)
    return [bytes(one) for one in sounds]


def _images(encoded: list[bytes]) -> NDArray[Any]:
    return _alike([image(one) for one in encoded])


def _alike(values: list[NDArray[Any]]) -> NDArray[Any]:
    """Combine arrays: stack those of equal shape; return a single one unchanged."""
    if len(values) == 1:
        return values[0]
    if len({value.shape for value in values}) <= 1:
        return np.stack(values) if values else np.empty((0,), np.uint8)
    several = np.empty(len(values), dtype=object)
    several[:] = values
    return several


def _text(strings: NDArray[Any]) -> NDArray[Any]:
    """Decode UTF-8; return other bytes unchanged."""
    try:
        texts = [one.decode() for one in strings.reshape(-1)]
    except UnicodeDecodeError:
        return strings
    return np.array(texts, dtype=np.str_).reshape(strings.shape)
