"""Data frames of any library: how their columns become numbers, and how new rows become the same numbers."""

from tallmc.frames.design import Coding, Design, Rescaling
from tallmc.frames.frame_coding import ArrayCoding, FrameCoding
from tallmc.frames.read import Frame, Table, is_frame

__all__ = ["ArrayCoding", "Coding", "Design", "Frame", "FrameCoding", "Rescaling", "Table", "is_frame"]
