// SPDX-License-Identifier: Apache-2.0
// Lines of Prometheus's text format.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** The sample on a line; `null` for comments. */
export function sample(line) {
  const found = LINE.exec(line);
  if (!found) return null;
  const labels = {};
  for (const [, name, value] of (found[2] ?? "").matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
  }
  return { name: found[1], labels, value: Number(found[3]) };
}
