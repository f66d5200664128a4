// SPDX-License-Identifier: Apache-2.0
// How long batches take in a processor, by a histogram of the gateway's own metrics.

import { sample } from "./exposition.js";

/** Seconds over which quantiles are computed. */
const WINDOW = 60;

/** The histogram of a processor in each pipeline: counts by the text of their bounds. */
function histograms(text, processor) {
  const all = new Map();
  for (const line of text.split("\n")) {
    const one = sample(line);
    if (!one?.name.endsWith("_bucket") || one.labels.processor !== processor) continue;
    const { pipeline = "", le = "" } = one.labels;
    if (!all.has(pipeline)) all.set(pipeline, new Map());
    all.get(pipeline).set(le, one.value);
  }
  return all;
}

/** What a histogram counted since an earlier page, as bounds with counts. A gateway that started again counts from 0. */
function counted(now, before) {
  const isSame = before !== undefined && (now.get("+Inf") ?? 0) >= (before.get("+Inf") ?? 0);
  const past = (le) => (isSame ? before.get(le) ?? 0 : 0);
  const buckets = [...now].map(([le, count]) => [le === "+Inf" ? Infinity : Number(le), count - past(le)]);
  return buckets.sort(([one], [other]) => (one < other ? -1 : 1));
}

/** The bounds of the bucket with this share of the batches; `null` without batches. */
function bounds(buckets, share) {
  const total = buckets.at(-1)?.[1] ?? 0;
  const index = buckets.findIndex(([, count]) => count >= share * total);
  return total > 0 ? { above: buckets[index - 1]?.[0] ?? 0, most: buckets[index][0] } : null;
}

/** The durations of a processor, from page to page. */
export class Durations {
  #processor;
  #pages = [];

  constructor(processor) {
    this.#processor = processor;
  }

  /** Takes a page of `status/durations`. Returns batches and quantiles of the last minute for each pipeline. */
  add({ time, text }) {
    // A hidden tab gets no pages: those of before are too old. Those of a clock that was set back are too new.
    this.#pages = this.#pages.filter((page) => page.time <= time && time - page.time <= WINDOW);
    this.#pages.push({ time, all: histograms(text, this.#processor) });
    const [first, last] = [this.#pages[0].all, this.#pages.at(-1).all];
    return [...last].map(([pipeline, now]) => {
      const buckets = counted(now, first.get(pipeline));
      return { pipeline, batches: buckets.at(-1)[1], p50: bounds(buckets, 0.5), p99: bounds(buckets, 0.99) };
    });
  }
}
