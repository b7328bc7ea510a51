// Charts over time: error against the bound, latency stacked by stage, clock offsets by node.

import { element } from "./dom.js";

export const STAGES = ["emit", "filter", "wire", "assemble", "angles", "locate"];
const HEIGHT = 150, LEFT = 46, BOTTOM = 8, TOP = 8;
let width = 600;

function frame(svg) {
  svg.replaceChildren();
  width = svg.clientWidth || width;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
}

function rule(svg, y, text) {
  element("path", { class: "grid", d: `M${LEFT} ${y}H${width}` }, svg);
  element("text", { x: 2, y: y + 4 }, svg).textContent = text;
}

const across = (i, count) => LEFT + ((width - LEFT) * i) / Math.max(count - 1, 1);

export function quantile(values, share) {
  if (!values.length) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

// Rows of {error, bound} in metres, on a log scale.
export function drawError(svg, rows) {
  frame(svg);
  const values = rows.flatMap((row) => [row.error, row.bound]).filter((v) => v > 0);
  if (!values.length) return;
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.max(Math.ceil(Math.log10(Math.max(...values))), low + 1);
  const y = (v) => TOP + ((HEIGHT - BOTTOM - TOP) * (high - Math.log10(v))) / (high - low);
  for (let power = low; power <= high; power++) {
    rule(svg, y(10 ** power), power >= 0 ? `${10 ** power} m` : power >= -2 ? `${10 ** (power + 2)} cm` : `${10 ** (power + 3)} mm`);
  }
  for (const name of ["error", "bound"]) {
    const points = rows.map((row, i) => [across(i, rows.length), row[name]]).filter(([, v]) => v > 0);
    const path = points.map(([x, v], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y(v).toFixed(1)}`).join("");
    element("path", { class: `line line-${name}`, d: path }, svg);
  }
}

// Rows of milliseconds by stage, stacked.
export function drawLatency(svg, rows) {
  frame(svg);
  if (rows.length < 2) return;
  const totals = rows.map((row) => row.reduce((sum, v) => sum + v, 0));
  const top = Math.max(1.1 * quantile(totals, 0.99), 1e-3);
  const y = (v) => TOP + (HEIGHT - BOTTOM - TOP) * (1 - Math.min(v / top, 1));
  for (const share of [0, 0.5, 1]) rule(svg, y(share * top), `${(share * top).toFixed(top < 10 ? 1 : 0)} ms`);
  let below = rows.map(() => 0);
  STAGES.forEach((name, stage) => {
    const above = below.map((v, i) => v + rows[i][stage]);
    const point = (i, v) => `${across(i, rows.length).toFixed(1)} ${y(v).toFixed(1)}`;
    const there = above.map((v, i) => `${i ? "L" : "M"}${point(i, v)}`).join("");
    const back = below.map((v, i) => [i, v]).reverse().map(([i, v]) => `L${point(i, v)}`).join("");
    element("path", { class: `s${stage}`, d: `${there}${back}Z` }, svg);
    below = above;
  });
}

// A round step that divides a span into two to five parts.
function roundStep(span) {
  const power = 10 ** Math.floor(Math.log10(span / 2));
  return power * ([5, 2].find((factor) => 2 * factor * power <= span) ?? 1);
}

// Rows of {offsets, truths} in nanoseconds by node; for every node its hue, the row in which its clock has stepped, and whether it
// stands back.
export function drawOffsets(svg, rows, nodes) {
  frame(svg);
  const values = rows.flatMap(({ offsets, truths }) => [...offsets, ...truths]);
  if (!values.length) return;
  const middle = (Math.min(...values) + Math.max(...values)) / 2, half = Math.max(0.55 * (Math.max(...values) - Math.min(...values)), 0.5);
  const y = (v) => TOP + ((HEIGHT - BOTTOM - TOP) * (middle + half - v)) / (2 * half);
  const part = roundStep(2 * half);
  for (let i = Math.ceil((middle - half) / part); i * part <= middle + half; i++) {
    const large = 2 * half > 1900, value = large ? (i * part) / 1000 : i * part;
    rule(svg, y(i * part), `${Number(value.toFixed(2))} ${large ? "µs" : "ns"}`);
  }
  const line = (name, node) => {
    let pen = "M";
    const points = rows.map((row, i) => {
      const value = row[name][node], from = pen;
      pen = value == null ? "M" : "L";
      return value == null ? "" : `${from}${across(i, rows.length).toFixed(1)} ${y(value).toFixed(1)}`;
    });
    return points.join("");
  };
  nodes.forEach(({ hue, step, back }, node) => {
    const group = element("g", { "data-clock": node, class: back ? "back" : "" }, svg);
    group.style.setProperty("--hue", hue);
    if (step != null) {
      element("path", { class: "line line-step", d: `M${across(step, rows.length).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}` }, group);
    }
    for (const [name, kind] of [["offsets", "line-offset"], ["truths", "line-truth"]]) {
      const d = line(name, node);
      if (d) element("path", { class: `line ${kind}`, d }, group);
    }
  });
}
