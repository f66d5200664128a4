// SPDX-License-Identifier: Apache-2.0
// Finds the faults of a diagram at the size at which the page shows it: labels beyond its edge, labels on other labels, on lines
// and on borders of boxes, small letters, and a contrast below 4.5 to 1 (WCAG 2, AA).
() => {
  const svg = document.querySelector("svg");
  const all = (selector) => [...svg.querySelectorAll(selector)];
  const corners = (node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return { left, top, right, bottom };
  };
  // Letters do not reach the upper and the lower edge of their line.
  const labels = all("text").map((node) => {
    const { left, top, right, bottom } = corners(node);
    return { node, words: node.textContent, left, top: top + 2, right, bottom: bottom - 2 };
  });
  const meet = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
  const holds = (outer, inner) =>
    outer.left <= inner.left && inner.right <= outer.right && outer.top <= inner.top && inner.bottom <= outer.bottom;
  const boxes = all("rect:not(.g)").map((node) => ({ node, ...corners(node) }));
  const edge = corners(svg);
  const scale = (edge.right - edge.left) / svg.viewBox.baseVal.width;
  const points = all("path.l, path.d").flatMap((path) => {
    const matrix = path.getScreenCTM();
    const length = path.getTotalLength();
    return Array.from({ length: Math.ceil(length) + 1 }, (_, at) => path.getPointAtLength(Math.min(at, length)).matrixTransform(matrix));
  });
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    const [red, green, blue] = numbers(color).map(part);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const page = getComputedStyle(svg.querySelector(".g")).fill;
  const found = [];
  labels.forEach((label, at) => {
    const say = (what) => found.push(`${label.words}: ${what}`);
    if (!holds(edge, label)) say("beyond the edge");
    for (const other of labels.slice(at + 1)) if (meet(label, other)) say(`on the label ${other.words}`);
    for (const box of boxes) if (meet(label, box) && !holds(box, label)) say("on the border of a box");
    if (points.some(({ x, y }) => label.left < x && x < label.right && label.top < y && y < label.bottom)) say("on a line");
    const style = getComputedStyle(label.node);
    if (parseFloat(style.fontSize) * scale < 8.5) say("the letters are small");
    const below = boxes.filter((box) => holds(box, label)).pop();
    if (contrast(style.fill, below ? getComputedStyle(below.node).fill : page) < 4.5) say("the contrast is low");
  });
  return found;
}
