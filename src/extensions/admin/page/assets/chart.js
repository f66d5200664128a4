// SPDX-License-Identifier: Apache-2.0
// Sparklines and line charts.

import { element, setAttribute, shape } from "./dom.js";
import { number } from "./format.js";

/** The most lines of a chart. */
const MAX_LINES = 12;

function extent(values) {
  const known = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  if (known.length === 0) return [0, 1];
  return low === high ? [low - Math.max(1, Math.abs(low)) / 2, high + Math.max(1, Math.abs(high)) / 2] : [low, high];
}

/** A path through points; a value that is not finite interrupts it. */
function path(points) {
  let isOpen = false;
  let text = "";
  for (const [x, y] of points) {
    if (Number.isFinite(y)) text += `${isOpen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isOpen = Number.isFinite(y);
  }
  return text;
}

/** A small line without axes. */
export function sparkline(label, points) {
  const [width, height] = [points, 24];
  const line = shape("path", { class: "line" });
  const root = shape("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, line);
  function update(values) {
    const [low, high] = extent(values);
    const scale = (value) => height - 2 - ((value - low) / (high - low)) * (height - 4);
    setAttribute(line, "d", path(values.map((value, index) => [width - values.length + index, scale(value)])));
  }
  return { root, update };
}

/** The time of the day, with its day if the range is long. */
function clock(seconds, range) {
  const date = new Date(seconds * 1000);
  return range > 86400 ? date.toLocaleString("en-GB", { dateStyle: "short", timeStyle: "short" }) : date.toLocaleTimeString("en-GB");
}

/** A chart of lines `{label, values: [[seconds, value]]}` over a range. */
export function chart(title, lines, start, end) {
  const [width, height, left, bottom, top] = [720, 280, 70, 24, 10];
  const shown = lines.slice(0, MAX_LINES);
  const [low, high] = extent(shown.flatMap((line) => line.values.map(([, value]) => value)));
  const x = (time) => left + ((time - start) / Math.max(end - start, 1e-9)) * (width - left - 10);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - bottom - top);
  const root = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (let step = 0; step <= 4; step += 1) {
    const value = low + ((high - low) * step) / 4;
    root.append(
      shape("line", { class: "grid", x1: left, x2: width - 10, y1: y(value), y2: y(value) }),
      shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)),
    );
    const time = start + ((end - start) * step) / 4;
    const anchor = step === 0 ? "start" : step === 4 ? "end" : "middle";
    root.append(shape("text", { x: x(time), y: height - 6, "text-anchor": anchor }, clock(time, end - start)));
  }
  const legend = element("ul", { class: "legend" });
  shown.forEach((line, index) => {
    root.append(shape("path", { class: `line line-${index % 6}`, d: path(line.values.map(([time, value]) => [x(time), y(value)])) }));
    legend.append(element("li", { class: `key-${index % 6}` }, line.label));
  });
  if (lines.length > shown.length) legend.append(element("li", {}, `${lines.length - shown.length} more lines are only in the table`));
  return element("figure", {}, root, legend);
}
