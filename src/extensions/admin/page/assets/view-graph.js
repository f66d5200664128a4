// SPDX-License-Identifier: Apache-2.0
// The pipelines as a picture and as a table of edges.

import { sparkline } from "./chart.js";
import { element, scrollable, setAttribute, setText, shape, table } from "./dom.js";
import { bytes, count, percent, quantiles, rate } from "./format.js";
import { BOX, GAP, layout } from "./layout.js";
import { Model, componentAddress, edgeDrops, edgeLatency, edgeQueue, edgeRate, nodeDrops, nodeLatency, nodeQueue, nodeRate, refusedRate, troubleOf } from "./model.js";
import { POINTS } from "./rates.js";

/** The most characters of a name in a box. */
const MAX_CHARS = 20;

/** The smallest scale of the picture. */
const MIN_SCALE = 0.75;

function shortened(name) {
  return name.length > MAX_CHARS ? `${name.slice(0, MAX_CHARS - 1)}…` : name;
}

function drawNode(node, place) {
  const box = shape("rect", { class: "box", width: BOX.width, height: BOX.height, rx: 6 });
  const title = shape("text", { x: 10, y: 21, class: "name" }, shortened(node.id));
  const state = shape("text", { x: 10, y: 39, class: "state" });
  const level = shape("rect", { class: "fill", x: 0, y: BOX.height - 5, width: 0, height: 5 });
  const tip = shape("title", {});
  const href = node.kind === "pipeline" ? null : componentAddress(node.kind, node.id);
  const group = shape("a", { class: `node ${node.kind}`, href, transform: `translate(${place.x} ${place.y})` }, tip, box, level, title, state);
  return { node, group, box, state, level, tip };
}

/** The line of an edge. It follows the row of its pipeline through the columns that it passes, and bends in one gap. */
function route(edge, [x1, y1, x2, y2]) {
  const isFromRow = edge.from.kind === "processor" || edge.from.kind === "pipeline";
  const [left, right] = isFromRow ? [x2 - GAP.x, x2] : [x1, x1 + GAP.x];
  const bend = GAP.x / 2;
  return {
    d: `M${x1} ${y1}L${left} ${y1}C${left + bend} ${y1} ${right - bend} ${y2} ${right} ${y2}L${x2} ${y2}`,
    x: left + bend,
    y: (y1 + y2) / 2,
  };
}

function drawEdge(edge, places) {
  const [from, to] = [places.get(edge.from.key), places.get(edge.to.key)];
  const { d, x, y } = route(edge, [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2]);
  const line = shape("path", { class: "edge", d, "marker-end": "url(#arrow)" });
  const text = shape("text", { class: "flow", x, y: y - 5, "text-anchor": "middle" });
  const drops = shape("text", { class: "flow drops", x, y: y + 14, "text-anchor": "middle" });
  return { edge, line, text, drops };
}

function draw(model) {
  const { places, width, height } = layout(model);
  const arrow = shape("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, shape("path", { d: "M0 0L8 4L0 8z" }));
  const svg = shape("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Pipelines" }, shape("defs", {}, arrow));
  // A picture that is a little too wide shrinks. A wider one scrolls, so that its texts stay readable.
  svg.style.minWidth = `${Math.round(width * MIN_SCALE)}px`;
  const edges = model.edges.map((edge) => drawEdge(edge, places));
  const nodes = [...model.nodes.values()].map((node) => drawNode(node, places.get(node.key)));
  svg.append(...edges.map((one) => one.line), ...nodes.map((one) => one.group), ...edges.flatMap((one) => [one.text, one.drops]));
  return { svg, edges, nodes };
}

function stateOf(node, graph, rates) {
  if (node.kind === "pipeline") return "";
  if (node.kind === "receiver") {
    const refused = refusedRate(node, rates);
    return refused > 0 ? `${rate(refused)} refused` : `${rate(nodeRate(node, "accepted", rates))} accepted`;
  }
  const dropped = nodeDrops(node);
  const held = node.parts.reduce((total, one) => total + one.held, 0);
  if (dropped > 0) return `${count(dropped)} dropped`;
  return held > 0 ? `${count(held)} held` : `${rate(nodeRate(node, "entered", rates))} in`;
}

function refresh(picture, model, rates) {
  const byKey = new Map(model.edges.map((edge) => [edge.key, edge]));
  for (const one of picture.edges) {
    const edge = byKey.get(one.edge.key) ?? one.edge;
    const flow = edgeRate(edge, rates);
    const drops = edgeDrops(edge, rates);
    setText(one.text, rate(flow));
    setText(one.drops, drops > 0 ? `−${rate(drops)}` : "");
    setAttribute(one.line, "data-mark", drops > 0 ? "bad" : flow > 0 ? "busy" : "idle");
  }
  for (const one of picture.nodes) {
    const node = model.nodes.get(one.node.key) ?? one.node;
    const fill = nodeQueue(node);
    const trouble = troubleOf(model.graph, node.kind, node.id);
    setText(one.state, stateOf(node, model.graph, rates));
    setAttribute(one.level, "width", ((fill ?? 0) * BOX.width).toFixed(1));
    const isWarned = nodeDrops(node) > 0 || refusedRate(node, rates) > 0;
    setAttribute(one.box, "data-mark", trouble ? "bad" : isWarned ? "warn" : "good");
    const latency = nodeLatency(node);
    const level = fill === null ? "" : `, queue ${percent(fill)} full`;
    setText(one.tip, `${node.kind} ${node.id}${latency ? `, sends in ${quantiles(latency)}` : ""}${level}${trouble ? `: ${trouble}` : ""}`);
  }
}

const COLUMNS = (rates) => [
  { title: "Pipeline", text: (edge) => edge.pipeline.id },
  { title: "From", text: (edge) => edge.from.id },
  { title: "To", text: (edge) => edge.to.id },
  { title: "Items", number: true, text: (edge) => rate(edgeRate(edge, rates)) },
  { title: "Queue", number: true, text: (edge) => (edgeQueue(edge) === null ? "–" : percent(edgeQueue(edge))) },
  { title: "Sends, p50 / p99", number: true, text: (edge) => quantiles(edgeLatency(edge)) },
  { title: "Drops", number: true, text: (edge) => rate(edgeDrops(edge, rates)), mark: (edge) => (edgeDrops(edge, rates) > 0 ? "bad" : null) },
];

export const title = "Graph";
export const topics = ["status/graph"];

/** Shows the view. */
export function open(root, { rates }) {
  const received = sparkline("Received items a second, last two minutes", POINTS);
  const refused = sparkline("Refused items a second, last two minutes", POINTS);
  const dropped = sparkline("Dropped items a second, last two minutes", POINTS);
  const [receivedText, refusedText, droppedText, memory] = [element("strong"), element("strong"), element("strong"), element("strong")];
  const edges = table({ caption: "Edges", columns: COLUMNS(rates), key: (edge) => edge.key });
  const holder = scrollable("Picture of the pipelines");
  const tile = (name, value, ...more) => element("div", { class: "tile" }, element("span", {}, name), value, ...more);
  root.append(
    element(
      "div",
      { class: "tiles" },
      tile("received", receivedText, received.root),
      tile("refused", refusedText, refused.root),
      tile("dropped", droppedText, dropped.root),
      tile("memory", memory),
    ),
    holder,
    element("p", { class: "note" }, "A box leads to its component. The bar at the lower side of a box is the fill of its queue. A rate is the mean of 5 s. The duration of sends is that of the last minute."),
    edges.root,
  );
  let shown = "";
  let picture = null;
  return {
    update(topic, graph) {
      const model = new Model(graph);
      const shape = JSON.stringify(graph.pipelines);
      if (shape !== shown) {
        shown = shape;
        picture = draw(model);
        holder.replaceChildren(picture.svg);
      }
      refresh(picture, model, rates);
      edges.update(model.edges);
      received.update(rates.received.values);
      refused.update(rates.refused.values);
      dropped.update(rates.dropped.values);
      setText(receivedText, rate(rates.received.values.at(-1)));
      setText(refusedText, rate(rates.refused.values.at(-1)));
      setAttribute(refusedText, "data-mark", rates.refused.values.at(-1) > 0 ? "warn" : null);
      setText(droppedText, rate(rates.dropped.values.at(-1)));
      setAttribute(droppedText, "data-mark", rates.dropped.values.at(-1) > 0 ? "bad" : null);
      const { usedBytes, limitBytes } = graph.memory;
      setText(memory, limitBytes ? `${bytes(usedBytes)} of ${bytes(limitBytes)}` : bytes(usedBytes));
    },
  };
}
