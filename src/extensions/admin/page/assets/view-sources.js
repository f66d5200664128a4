// SPDX-License-Identifier: Apache-2.0
// Rings, cells and their processes, by the gateway's own metrics.

import { element, note, table } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { sample } from "./exposition.js";

const RING = "tidegate_nixl_ring_";

/** The gateway gives its metrics in any order. `rank_2` comes before `rank_10`. */
const ORDER = new Intl.Collator("en", { numeric: true });

function sumOf(samples, name) {
  return samples.filter((one) => one.name === name).reduce((sum, one) => sum + one.value, 0);
}

/** One row a ring, with the values of all its metrics. */
function rings(samples, rates) {
  const all = new Map();
  for (const one of samples) {
    if (!one.name.startsWith(RING)) continue;
    const key = `${one.labels.receiver} ${one.labels.ring}`;
    if (!all.has(key)) all.set(key, { key, receiver: one.labels.receiver, ring: one.labels.ring, info: {}, samples: [] });
    const row = all.get(key);
    row.samples.push(one);
    if (one.name === `${RING}info`) row.info = one.labels;
  }
  const rows = [...all.values()];
  for (const row of rows) {
    row.fill = row.samples.find((one) => one.name === `${RING}fill_ratio`)?.value ?? null;
    row.events = sumOf(row.samples, `${RING}events_total`);
    row.lost = sumOf(row.samples, `${RING}lost_events_total`);
    row.suspected = sumOf(row.samples, `${RING}suspected_loss_total`);
    row.resets = sumOf(row.samples, `${RING}resets_total`);
    row.errors = sumOf(row.samples, `${RING}errors_total`) + sumOf(row.samples, `${RING}rejected_events_total`);
    row.rate = rates.of(row.key, row.events);
  }
  return rows.sort((one, other) => ORDER.compare(one.key, other.key));
}

/** Rates of counters between two pages. */
class Speeds {
  #before = new Map();
  #now = new Map();
  #times = [0, 0];

  turn(time) {
    this.#before = this.#now;
    this.#now = new Map();
    this.#times = [this.#times[1], time];
  }

  of(key, value) {
    this.#now.set(key, value);
    const seconds = this.#times[1] - this.#times[0];
    return this.#before.has(key) && seconds > 0 ? Math.max(0, value - this.#before.get(key)) / seconds : null;
  }
}

const bad = (value) => (value > 0 ? "bad" : null);

const RINGS = [
  { title: "Ring", text: (row) => row.ring ?? "" },
  { title: "Receiver", text: (row) => row.receiver ?? "" },
  { title: "Fill", number: true, text: (row) => (row.fill === null ? "–" : percent(row.fill)), mark: (row) => (row.fill > 0.8 ? "warn" : null) },
  { title: "Events", number: true, text: (row) => rate(row.rate) },
  { title: "Events, all", number: true, text: (row) => count(row.events) },
  { title: "Lost", number: true, text: (row) => count(row.lost), mark: (row) => bad(row.lost) },
  { title: "Times full", number: true, text: (row) => count(row.suspected), mark: (row) => bad(row.suspected) },
  { title: "Resets", number: true, text: (row) => count(row.resets) },
  { title: "Errors", number: true, text: (row) => count(row.errors), mark: (row) => bad(row.errors) },
  { title: "Mode", text: (row) => row.info.mode ?? "gone" },
  { title: "User", number: true, text: (row) => row.info.owner_uid ?? "" },
];

const OTHERS = [
  { title: "Metric", text: (row) => row.name },
  { title: "Labels", text: (row) => Object.entries(row.labels).map(([key, value]) => `${key}=${value}`).join(", ") },
  { title: "Value", number: true, text: (row) => count(row.value) },
];

export const title = "Sources";
export const topics = ["status/sources"];

/** Shows the view. */
export function open(root) {
  const speeds = new Speeds();
  const key = (row) => `${row.name} ${JSON.stringify(row.labels)}`;
  const ordered = (list) => list.map((one) => [key(one), one]).sort(([one], [other]) => ORDER.compare(one, other)).map(([, one]) => one);
  const rows = table({ caption: "NIXL rings", columns: RINGS, key: (row) => row.key, empty: "No rings.", filter: true });
  const cells = table({ caption: "Cells and their processes", columns: OTHERS, key, empty: "No cells." });
  const others = table({ caption: "Sockets and multi-process stores", columns: OTHERS, key, empty: "None." });
  root.append(rows.root, element("h2", {}, "Cells and processes"), cells.root, element("h2", {}, "Sockets and stores"), others.root,
    note("These are the gateway's own metrics. The command tidegate ring shows more of a ring."));
  return {
    update(topic, { text, time }) {
      if (topic !== "status/sources") return;
      const samples = text.split("\n").map(sample).filter(Boolean);
      speeds.turn(time);
      rows.update(rings(samples, speeds));
      cells.update(ordered(samples.filter((one) => one.name.startsWith("tidegate_shm_"))));
      others.update(ordered(samples.filter((one) => !one.name.startsWith("tidegate_shm_") && !one.name.startsWith(RING))));
    },
  };
}
