"""Colours for scores in [0, 1]: one sequential scale per theme, and a text colour readable on each.

Lightness changes monotonically along both scales (paper, amber, vermilion, plum), so the order is also visible to
colour-blind readers and in greyscale print.
"""

from __future__ import annotations

LEVELS = 21
"""Steps of the scale: one per 5 points of a score shown as 0 to 100."""

Rgb = tuple[int, int, int]

_LIGHT: tuple[Rgb, ...] = ((250, 244, 232), (253, 218, 156), (246, 164, 84), (220, 91, 48), (150, 32, 58), (84, 14, 66))
_DARK: tuple[Rgb, ...] = ((43, 36, 48), (84, 30, 84), (147, 37, 84), (213, 74, 54), (246, 148, 60), (253, 226, 150))
_INKS: tuple[Rgb, Rgb] = ((0, 0, 0), (255, 255, 255))


def background(score: float, *, dark: bool) -> Rgb:
    """Return the colour of a score.

    Args:
        dark: True for dark pages and terminals, where high scores are light.

    Returns:
        Red, green, blue, each 0 to 255.
    """
    stops = _DARK if dark else _LIGHT
    position = level(score) / (LEVELS - 1) * (len(stops) - 1)
    left = min(int(position), len(stops) - 2)
    share = position - left
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(stops[left], stops[left + 1], strict=True))
    return red, green, blue


def ink(paper: Rgb) -> Rgb:
    """Return black or white, whichever has more contrast with a background."""
    return max(_INKS, key=lambda colour: contrast(colour, paper))


def level(score: float) -> int:
    """Return the step of a score in [0, 1], from 0 to LEVELS - 1."""
    return int(score * (LEVELS - 1) + 0.5)


def luminance(colour: Rgb) -> float:
    """Return the relative luminance in [0, 1] (WCAG 2.2)."""
    parts = [channel / 255 for channel in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Rgb, other: Rgb) -> float:
    """Return the contrast ratio of two colours, from 1 to 21 (WCAG 2.2); running text needs 4.5."""
    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def css(colour: Rgb) -> str:
    """Format the colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
