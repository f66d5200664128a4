// SPDX-License-Identifier: Apache-2.0
// Alerts and rules.

import { element, note, table } from "./dom.js";
import { duration, labels, number, time } from "./format.js";

const MARKS = { firing: "bad", pending: "warn", inactive: "good", unknown: "warn", ok: "good", err: "bad" };

const ALERTS = [
  { title: "Alert", text: (row) => row.labels?.alertname ?? "" },
  { title: "State", text: (row) => row.state, mark: (row) => MARKS[row.state] ?? null },
  { title: "Labels", text: (row) => labels(row.labels) },
  { title: "Value", number: true, text: (row) => number(row.value) },
  { title: "Since", text: (row) => time(row.activeAt) },
  { title: "Annotations", text: (row) => Object.entries(row.annotations ?? {}).map(([key, value]) => `${key}: ${value}`).join("\n") },
];

const RULES = [
  { title: "Rule", text: (row) => row.name },
  { title: "Group", text: (row) => row.group },
  { title: "Kind", text: (row) => row.type },
  { title: "Expression", text: (row) => row.query, href: (row) => `#/query/${encodeURIComponent(row.query)}` },
  { title: "State", text: (row) => row.state ?? "", mark: (row) => MARKS[row.state] ?? null },
  { title: "Health", text: (row) => row.health ?? "", mark: (row) => MARKS[row.health] ?? null },
  { title: "Took", number: true, text: (row) => duration(row.evaluationTime) },
  { title: "Last evaluation", text: (row) => time(row.lastEvaluation) },
  { title: "Error", text: (row) => row.lastError ?? "" },
];

export const title = "Alerts";
export const topics = ["rules", "alerts"];

/** Shows the view. */
export function open(root) {
  const missing = note("Rules are not configured.");
  missing.hidden = true;
  const alerts = table({ caption: "Active alerts", columns: ALERTS, key: (row) => JSON.stringify(row.labels), empty: "No alert is active." });
  const rules = table({ caption: "Rules", columns: RULES, key: (row) => `${row.group} ${row.index}`, empty: "No rules.", filter: true });
  root.append(missing, alerts.root, element("h2", {}, "Rules"), rules.root);
  return {
    update(topic, page) {
      if (topic === "alerts") alerts.update(page.alerts);
      if (topic !== "rules") return;
      missing.hidden = page.groups.length > 0;
      rules.update(page.groups.flatMap((group) => group.rules.map((rule, index) => ({ ...rule, group: group.name, index: `${group.file} ${index}` }))));
    },
  };
}
