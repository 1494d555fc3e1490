"""Contrast of the dashboard's colours: at least 4.5 to 1 for text (WCAG 2.2, success criterion 1.4.3)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ureplicator_controller.api.dashboard as dashboard

STYLES = (Path(dashboard.__file__).parent / "static" / "dashboard.css").read_text()
STATES = ("agree", "moving", "error", "excluded", "stuck")
TEXTS = ("ink", "quiet", *STATES)
LEAST_CONTRAST = 4.5


def schemes() -> list[dict[str, str]]:
    """Name -> colour of the light scheme, and of the dark one."""
    roots = re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", root)) for root in roots]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_known_pairs() -> None:
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_can_be_read(scheme: int) -> None:
    colours = schemes()[scheme]
    pairs = [(text, ground) for text in TEXTS for ground in ("ground", "panel")]
    pairs += [("on-colour", state) for state in STATES]
    poor = {
        pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2)
        for pair in pairs
        if contrast(colours[pair[0]], colours[pair[1]]) < LEAST_CONTRAST
    }
    assert poor == {}
