// SPDX-License-Identifier: Apache-2.0
// The targets of scrapes.

import { element, note, table } from "./dom.js";
import { count, duration, labels, time } from "./format.js";

const MARKS = { up: "good", down: "bad" };

const COLUMNS = [
  { title: "Target", text: (row) => row.scrapeUrl },
  { title: "Job", text: (row) => row.scrapePool },
  { title: "State", text: (row) => row.health, mark: (row) => MARKS[row.health] ?? "warn" },
  { title: "Labels", text: (row) => labels(row.labels) },
  { title: "Last scrape", text: (row) => time(row.lastScrape) },
  { title: "Took", number: true, text: (row) => duration(row.lastScrapeDuration) },
  { title: "Every", number: true, text: (row) => row.scrapeInterval },
  { title: "Error", text: (row) => row.lastError },
];

const DROPPED = [
  { title: "Job", text: ([job]) => job },
  { title: "Dropped by relabelling", number: true, text: ([, targets]) => count(targets) },
];

export const title = "Targets";
export const topics = ["targets"];

/** Shows the view. */
export function open(root) {
  const empty = "No targets: no prometheus receiver scrapes.";
  const active = table({ caption: "Scrape targets", columns: COLUMNS, key: (row) => `${row.scrapePool} ${row.scrapeUrl} ${JSON.stringify(row.labels)}`, empty, filter: true });
  const dropped = table({ caption: "Dropped targets of each job", columns: DROPPED, key: ([job]) => job, empty: "" });
  const summary = note("");
  root.append(summary, active.root, element("h2", {}, "Dropped targets"), dropped.root);
  return {
    update(topic, page) {
      if (topic !== "targets") return;
      const rows = page.activeTargets;
      const up = rows.filter((row) => row.health === "up").length;
      summary.textContent = `Targets that are up: ${up} of ${rows.length}.`;
      // Targets that are down come first.
      active.update([...rows].sort((one, other) => Number(one.health === "up") - Number(other.health === "up")));
      dropped.update(Object.entries(page.droppedTargetCounts ?? {}));
    },
  };
}
