// SPDX-License-Identifier: Apache-2.0
// Rates of the counters of the graph, and a bounded past of them.

/** Points of a sparkline: two minutes. */
export const POINTS = 120;

/** Seconds over which a rate is computed. */
const WINDOW = 5;

/** The last values, at most `POINTS`. */
export class Past {
  values = [];

  add(value, times = 1) {
    for (let time = 0; time < times; time += 1) this.values.push(value);
    while (this.values.length > POINTS) this.values.shift();
  }
}

/** The sum of drops of all reasons. */
export function drops(component) {
  return Object.values(component.dropped ?? {}).reduce((sum, items) => sum + items, 0);
}

/** The key of a component's counters. */
export function keyOf(component) {
  return `${component.path} ${component.signal}`;
}

const COUNTERS = ["accepted", "refused", "failed", "entered", "left", "made", "absorbed"];

function totals(component) {
  const all = { dropped: drops(component) };
  for (const name of COUNTERS) if (component[name] !== undefined) all[name] = component[name];
  return all;
}

/** The rates of all components, from page to page. */
export class Rates {
  #samples = [];
  #instance = "";
  /** Received items a second of all receivers. */
  received = new Past();
  /** Items a second that receivers refused or could not take. */
  refused = new Past();
  /** Drops a second of all components. */
  dropped = new Past();

  /** Takes the newest page of the graph. Only views that show the graph read it: seconds without a page get their mean. */
  add(graph) {
    if (graph.instance !== this.#instance) {
      this.#samples = [];
      this.#instance = graph.instance;
    }
    const before = this.#samples.at(-1)?.time;
    // The newest page comes again with each view.
    if (graph.time === before) return;
    const seconds = Math.min(POINTS, Math.max(1, Math.round(graph.time - (before ?? graph.time))));
    const all = new Map(graph.components.map((one) => [keyOf(one), totals(one)]));
    this.#samples.push({ time: graph.time, all });
    while (this.#samples.length > 2 && graph.time - this.#samples[0].time > WINDOW + 0.5) this.#samples.shift();
    const sum = (name, from) => from.reduce((total, one) => total + (this.of(one, name) ?? 0), 0);
    if (this.#samples.length > 1) {
      const receivers = graph.components.filter((one) => one.class === "receiver");
      this.received.add(sum("accepted", receivers), seconds);
      this.refused.add(sum("refused", receivers) + sum("failed", receivers), seconds);
      this.dropped.add(sum("dropped", graph.components), seconds);
    }
  }

  /** The rate of a counter a second; `null` before the second page. */
  of(component, name) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!component || !first || last.time <= first.time) return null;
    const key = keyOf(component);
    const after = last.all.get(key)?.[name];
    if (after === undefined) return null;
    // A component that a reload has added has no past.
    const before = first.all.get(key)?.[name] ?? after;
    return Math.max(0, after - before) / (last.time - first.time);
  }
}
