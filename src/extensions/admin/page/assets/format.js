// SPDX-License-Identifier: Apache-2.0
// Numbers and times as text.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function scaled(value, base, prefixes) {
  let index = 0;
  let left = Math.abs(value);
  while (left >= base && index < prefixes.length - 1) {
    left /= base;
    index += 1;
  }
  const digits = left >= 100 || (index === 0 && Number.isInteger(left)) ? 0 : left >= 10 ? 1 : 2;
  return `${value < 0 ? "-" : ""}${left.toFixed(digits)}${prefixes[index]}`;
}

/** A count, exact up to six digits. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 1e6 ? value.toLocaleString("en") : scaled(value, 1000, PREFIXES);
}

/** Every digit of a count, for sums that must add up. */
export function exact(value) {
  return value.toLocaleString("en");
}

/** A rate per second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value !== 0 && Math.abs(value) < 10 ? String(Number(value.toPrecision(2))) : scaled(Math.round(value), 1000, PREFIXES)}/s`;
}

/** A measured value with four significant digits. */
export function number(value) {
  if (value === null || value === undefined || value === "") return "–";
  const float = Number(value);
  if (!Number.isFinite(float)) return String(value);
  if (Number.isInteger(float) && Math.abs(float) < 1e9) return float.toLocaleString("en");
  return String(Number(float.toPrecision(4)));
}

/** Bytes in binary units. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"].map((unit) => ` ${unit}`));
}

/** A part of 1 in per cent. */
export function percent(part) {
  return `${(part * 100).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
}

/** A duration in seconds. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  return `${minutes} min ${Math.floor(seconds % 60)} s`;
}

/** The median and the 99th percentile of `latency` of the graph. */
export function quantiles(latency) {
  return latency ? `${duration(latency.p50)} / ${duration(latency.p99)}` : "–";
}

/** A time of the server, in the zone of the reader. */
export function time(value) {
  const date = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  if (Number.isNaN(date.getTime()) || date.getUTCFullYear() < 1971) return "never";
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

/** Labels as PromQL writes them. */
export function labels(map) {
  const { __name__: name = "", ...others } = map ?? {};
  const pairs = Object.entries(others).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  return pairs.length > 0 ? `${name}{${pairs.join(", ")}}` : name || "{}";
}
