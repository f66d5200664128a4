// SPDX-License-Identifier: Apache-2.0
// PromQL: the present as a table, a range as a graph.

import { page } from "./api.js";
import { chart } from "./chart.js";
import { element, note, table } from "./dom.js";
import { labels, number, time } from "./format.js";

/** The most series of an answer. */
const MAX_SERIES = 1000;

/** The points of a graph. */
const STEPS = 240;

const RANGES = [["60", "1 minute"], ["300", "5 minutes"], ["600", "10 minutes"], ["3600", "1 hour"], ["21600", "6 hours"]];

/** The elements of an instant result: their labels and a text. */
function elements({ resultType, result }) {
  if (resultType === "scalar" || resultType === "string") return [{ metric: {}, text: number(result[1]), at: result[0] }];
  if (resultType === "vector") {
    return result.map((one) => {
      const [at, value] = one.value ?? one.histogram;
      return { metric: one.metric, text: one.value ? number(value) : `count ${number(value.count)}, sum ${number(value.sum)}`, at };
    });
  }
  return result.map((one) => ({ metric: one.metric, text: `${(one.values ?? one.histograms).length} samples`, at: (one.values ?? one.histograms).at(-1)[0] }));
}

const COLUMNS = [
  { title: "Series", text: (row) => labels(row.metric) },
  { title: "Value", number: true, text: (row) => row.text },
  { title: "Time", text: (row) => time(row.at) },
];

function messages({ warnings = [], infos = [] }) {
  return [...warnings, ...infos].map((text) => note(text, "warning"));
}

async function instant(query, signal) {
  const answer = await page("query", { query, limit: MAX_SERIES }, signal);
  const rows = table({ caption: "Result", columns: COLUMNS, key: (row) => JSON.stringify(row.metric), empty: "The result is empty." });
  rows.update(elements(answer.data));
  return [...messages(answer), rows.root];
}

async function range(query, seconds, signal) {
  const end = Math.floor(Date.now() / 1000);
  const start = end - seconds;
  const step = Math.max(1, Math.ceil(seconds / STEPS));
  const answer = await page("query_range", { query, start, end, step, limit: MAX_SERIES }, signal);
  const lines = answer.data.result.filter((one) => one.values).map((one) => ({
    label: labels(one.metric),
    values: one.values.map(([at, value]) => [at, Number(value)]),
  }));
  if (lines.length === 0) return [...messages(answer), note("The result has no values in this range.")];
  return [...messages(answer), chart(query, lines, start, end)];
}

export const title = "Query";
export const topics = [];

/** Shows the view. `#/query/EXPRESSION` runs an expression. */
export function open(root, { parts: [first = ""] }) {
  let abort = new AbortController();
  const field = element("textarea", { id: "query", rows: 2, spellcheck: "false", "aria-label": "PromQL expression", placeholder: "sum by (job) (up)" });
  field.value = first;
  const kind = element("select", { "aria-label": "Output" }, element("option", { value: "0" }, "table, now"), ...RANGES.map(([value, text]) => element("option", { value }, `graph, ${text}`)));
  const button = element("button", { type: "submit" }, "Run");
  const result = element("div", { "aria-live": "polite" });

  async function run() {
    const query = field.value.trim();
    if (!query) return;
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    const seconds = Number(kind.value);
    history.replaceState(null, "", `#/query/${encodeURIComponent(query)}`);
    result.replaceChildren(note("The query runs."));
    try {
      const nodes = seconds > 0 ? await range(query, seconds, signal) : await instant(query, signal);
      if (!signal.aborted) result.replaceChildren(...nodes);
    } catch (error) {
      if (!signal.aborted) result.replaceChildren(note(error.message, "error"));
    }
  }

  const form = element("form", { class: "bar", submit: (event) => { event.preventDefault(); run(); } }, field, kind, button);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    run();
  });
  root.append(form, note("Enter runs the query, Shift and Enter begin a new line. A graph needs the history of the admin extension."), result);
  run();
  return { close: () => abort.abort() };
}
