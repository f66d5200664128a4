// SPDX-License-Identifier: Apache-2.0
// The reasons for the number of series.

import { data } from "./api.js";
import { element, facts, note, table } from "./dom.js";
import { bytes, count } from "./format.js";

const LISTS = [
  ["seriesCountByMetricName", "Series by metric", "Metric"],
  ["labelValueCountByLabelName", "Values by label", "Label"],
  ["seriesCountByLabelValuePair", "Series by label and value", "Pair"],
  ["streamCountBySource", "Streams by source", "Source"],
];

export const title = "Cardinality";
export const topics = [];

/** Shows the view. The gateway counts all series for it, so it is not updated by itself. */
export function open(root) {
  const abort = new AbortController();
  const result = element("div", { "aria-live": "polite" });
  const button = element("button", { type: "button", click: () => start() }, "Count again");

  function show(page) {
    const { headStats } = page;
    const parts = LISTS.map(([name, caption, what]) => {
      const columns = [
        { title: what, text: (row) => row.name || "(no attributes)" },
        { title: "Number", number: true, text: (row) => count(row.value) },
      ];
      const list = table({ caption, columns, key: (row) => row.name, empty: page.labelsCounted === false ? "Not counted: memory is short." : "None." });
      list.update(page[name] ?? []);
      return list.root;
    });
    const totals = facts([
      ["Series", count(headStats.numSeries)],
      ["Label pairs", count(headStats.numLabelPairs)],
      ["Memory of history", bytes(page.bytes)],
    ]);
    result.replaceChildren(totals, element("div", { class: "columns" }, ...parts));
  }

  async function start() {
    button.disabled = true;
    try {
      show(await data("status/tsdb?limit=20", abort.signal));
    } catch (error) {
      if (!abort.signal.aborted) result.replaceChildren(note(error.message, "error"));
    }
    button.disabled = false;
  }

  root.append(element("div", { class: "bar" }, button), result);
  start();
  return { close: () => abort.abort() };
}
