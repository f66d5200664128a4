// SPDX-License-Identifier: Apache-2.0
// Texts whose contrast with their background is below 4.5 to 1 (WCAG 2, AA).
() => {
  const parse = (color) => (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const luminance = ([red, green, blue]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  };
  const background = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const box = at instanceof SVGElement ? at.parentElement?.querySelector(":scope > .box") : null;
      const color = parse(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || node.closest("title, script, noscript, option, datalist") || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const color = parse(node instanceof SVGElement ? style.fill : style.color);
    const [one, other] = [luminance(color), luminance(background(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${texts.currentNode.textContent.trim().slice(0, 60)}`);
  }
  return found;
}
