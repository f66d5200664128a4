// SPDX-License-Identifier: Apache-2.0
// The graph of `status/graph` as nodes and edges.

import { drops } from "./rates.js";

/** The signal of a pipeline: `metrics` of `metrics/vendor`. */
function signalOf(pipeline) {
  return pipeline.id.split("/")[0];
}

/** The components and their connections. */
export class Model {
  nodes = new Map();
  edges = [];

  constructor(graph) {
    this.graph = graph;
    this.connectors = new Set(graph.components.filter((one) => one.class === "connector").map((one) => one.id));
    for (const pipeline of graph.pipelines) this.#add(pipeline);
  }

  #end(kind, id, row) {
    const actual = this.connectors.has(id) ? "connector" : kind;
    return this.#node(actual, id, null, row);
  }

  #node(kind, id, pipeline, row) {
    const key = pipeline === null ? `${kind} ${id}` : `${kind} ${id} ${pipeline}`;
    if (!this.nodes.has(key)) {
      const parts = this.graph.components.filter((one) => one.class === kind && one.id === id && (one.pipeline ?? null) === pipeline);
      this.nodes.set(key, { key, kind, id, pipeline, parts, rows: [] });
    }
    const node = this.nodes.get(key);
    node.rows.push(row);
    return node;
  }

  #add(pipeline) {
    const row = this.graph.pipelines.indexOf(pipeline);
    const sources = pipeline.receivers.map((id) => this.#end("receiver", id, row));
    const stages = pipeline.processors.map((id) => this.#node("processor", id, pipeline.id, row));
    if (stages.length === 0) {
      const key = `pipeline ${pipeline.id}`;
      const stage = { key, kind: "pipeline", id: "no processors", pipeline: pipeline.id, parts: [], rows: [row] };
      this.nodes.set(key, stage);
      stages.push(stage);
    }
    const ends = pipeline.exporters.map((id) => this.#end("exporter", id, row));
    const connect = (from, to) => this.edges.push({ key: `${from.key} > ${to.key} ${pipeline.id}`, from, to, pipeline, sources, stages });
    sources.forEach((source) => connect(source, stages[0]));
    stages.slice(1).forEach((stage, index) => connect(stages[index], stage));
    ends.forEach((end) => connect(stages.at(-1), end));
  }
}

/** The part of a node that counts a signal. */
function part(node, signal) {
  return node.parts.find((one) => one.signal === signal) ?? node.parts[0];
}

/** Items a second out of a source into a pipeline. */
function sourceRate(source, signal, rates) {
  const name = source.kind === "receiver" ? "accepted" : "left";
  return rates.of(part(source, signal), name);
}

/** Items a second on an edge. */
export function edgeRate(edge, rates) {
  const signal = signalOf(edge.pipeline);
  if (edge.sources.includes(edge.from)) return sourceRate(edge.from, signal, rates);
  if (edge.from.kind === "processor") return rates.of(part(edge.from, signal), "left");
  return edge.sources.reduce((sum, source) => sum + (sourceRate(source, signal, rates) ?? 0), 0);
}

/** Drops a second of the component that an edge leads to. Exporters count each signal apart. */
export function edgeDrops(edge, rates) {
  return rates.of(part(edge.to, signalOf(edge.pipeline)), "dropped");
}

/** The queues of parts of a node: one for each signal, or for each signal and endpoint. */
export function queuesOf(parts) {
  return parts.filter((one) => one.queue).flatMap((one) => {
    const { endpoints = [], used, capacity } = one.queue;
    const all = endpoints.length > 0 ? endpoints : [{ endpoint: null, used, capacity, latency: one.latency }];
    return all.map((queue) => ({ ...queue, signal: one.signal, fill: queue.capacity > 0 ? queue.used / queue.capacity : 0 }));
  });
}

/** The fill of the fullest queue, from 0 to 1; `null` without a queue. A batch is refused if one of its queues is full. */
function fullest(parts) {
  const fills = queuesOf(parts).map((queue) => queue.fill);
  return fills.length > 0 ? Math.max(...fills) : null;
}

/** The fill of the fullest queue that an edge leads to. */
export function edgeQueue(edge) {
  const to = part(edge.to, signalOf(edge.pipeline));
  return to ? fullest([to]) : null;
}

/** The quantiles of the attempts to send of the exporter that an edge leads to; `null` without attempts. */
export function edgeLatency(edge) {
  return part(edge.to, signalOf(edge.pipeline))?.latency ?? null;
}

/** The fullest queue of a node. */
export function nodeQueue(node) {
  return fullest(node.parts);
}

/** The quantiles of the slowest signal of a node; `null` without attempts to send. */
export function nodeLatency(node) {
  const known = node.parts.map((one) => one.latency).filter(Boolean);
  return known.sort((one, other) => other.p99 - one.p99)[0] ?? null;
}

/** All drops of a node since the start. */
export function nodeDrops(node) {
  return node.parts.reduce((sum, one) => sum + drops(one), 0);
}

/** The rate of a counter of a node, over its signals and pipelines. */
export function nodeRate(node, name, rates) {
  return node.parts.reduce((sum, one) => sum + (rates.of(one, name) ?? 0), 0);
}

/** Items a second that a receiver refused or could not take. */
export function refusedRate(node, rates) {
  return nodeRate(node, "refused", rates) + nodeRate(node, "failed", rates);
}

/** The address of the view of a component. */
export function componentAddress(kind, id) {
  return `#/component/${kind}/${encodeURIComponent(id)}`;
}

/** The name of a component in logs and troubles: `exporters::otlp`. */
export function logName(kind, id) {
  return `${kind}s::${id}`;
}

/** Whether a key of troubles or notices names a component. */
export function isNameOf(key, kind, id) {
  const name = logName(kind, id);
  return key === id || key === name || key.startsWith(`${name}@`);
}

/** The problem of a component, if it has one. */
export function troubleOf(graph, kind, id) {
  const found = Object.entries(graph.health.troubles).find(([key]) => isNameOf(key, kind, id));
  return found?.[1] ?? null;
}
