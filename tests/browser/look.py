"""What a browser has drawn, measured."""

from __future__ import annotations

from typing import Any

_CONTRASTS = """root => {
  const pixel = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const parse = text => { pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = text; pixel.fillRect(0, 0, 1, 1);
                          const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
  const ground = e => { const under = e.parentElement ? ground(e.parentElement) : [255, 255, 255];
                        return over(parse(getComputedStyle(e).backgroundColor), under); };
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const found = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim()) continue;
    const under = ground(e), top = over(parse(getComputedStyle(e).color), under);
    const [low, high] = [light(top), light(under)].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), walk.currentNode.data.slice(0, 40)]);
  }
  return found;
}"""


def contrasts(target: Any) -> list[tuple[float, str]]:
    """For each stretch of text in an element, folded ones too, its contrast (WCAG 2.2) with what is drawn under it."""
    return target.evaluate(_CONTRASTS)


def too_pale(target: Any, least: float = 4.5) -> list[tuple[float, str]]:
    """Those under `least`; fails where there is hardly any text to measure."""
    ratios = contrasts(target)
    assert len(ratios) > 20
    return [pair for pair in ratios if pair[0] < least]
