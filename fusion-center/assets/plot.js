// Plots with axes: round numbers, and times of day where the axis is time.

import { clockTime, element, label, roundStep } from "./dom.js";

const LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 24;
const TIME_STEPS_S = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600];

// The frame of a plot. Returns where values are, in pixels.
export function frame(svg, x, y) {
  svg.replaceChildren();
  const width = svg.clientWidth || 600, height = svg.clientHeight || 200;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const across = (value) => LEFT + ((width - LEFT - RIGHT) * (value - x.from)) / (x.to - x.from || 1);
  const share = y.log ? (v) => Math.log(v / y.from) / Math.log(y.to / y.from) : (v) => (v - y.from) / (y.to - y.from || 1);
  const up = (value) => height - BOTTOM - (height - TOP - BOTTOM) * Math.min(Math.max(share(value), 0), 1);
  for (const [value, text] of y.ticks) {
    element("path", { class: "grid", d: `M${LEFT} ${up(value)}H${width - RIGHT}` }, svg);
    label(svg, LEFT - 7, up(value) + 4, text, "end");
  }
  for (const [value, text] of x.ticks) {
    element("path", { class: "grid fine", d: `M${across(value)} ${TOP}V${height - BOTTOM}` }, svg);
    label(svg, across(value), height - 6, text, "mid");
  }
  return { across, up, left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM, width };
}

// An axis of times of day.
export function timeAxis(svg, from, to) {
  const room = Math.max(2, Math.floor(((svg.clientWidth || 600) - LEFT) / 85));
  const step = 1000 * (TIME_STEPS_S.find((seconds) => (to - from) / 1000 / seconds <= room) ?? 600), ticks = [];
  // Round by the local clock.
  const shift = new Date(to).getTimezoneOffset() * 60000;
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) ticks.push([t, clockTime(t)]);
  return { from, to, ticks };
}

// An axis of round numbers from a range.
export function axis(low, high, count, words) {
  const step = roundStep(high - low || 1, count), from = Math.floor(low / step + 1e-9) * step, to = Math.ceil(high / step - 1e-9) * step, ticks = [];
  for (let i = 0; from + i * step <= to + step / 1e6; i++) ticks.push([from + i * step, words(from + i * step, step)]);
  return { from, to, ticks };
}

// A logarithmic axis of whole decades, with 2 and 5 where there are few.
export function logAxis(low, high, words) {
  let from = 10 ** Math.floor(Math.log10(low)), to = 10 ** Math.ceil(Math.log10(high));
  if (to / from < 9) to = 10 * from;
  const decades = Math.round(Math.log10(to / from)), ticks = [];
  for (let i = 0; i <= decades; i++) {
    for (const factor of decades <= 2 ? [1, 2, 5] : [1]) {
      const value = factor * from * 10 ** i;
      if (value <= to * 1.001) ticks.push([value, words(value)]);
    }
  }
  return { from, to, ticks, log: true };
}

// A line through [x, y] in pixels. Of many points in one column the lowest and the highest remain. A gap of more than `gap` pixels breaks it.
export function line(svg, kind, points, gap = Infinity) {
  let pen = "M", before = null;
  const d = thinned(points).map(([x, y]) => {
    const step = `${before == null || x - before > gap ? "M" : pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    [pen, before] = ["L", x];
    return step;
  });
  return element("path", { class: `line ${kind}`, d: d.join("") || "M0 0" }, svg);
}

function thinned(points) {
  if (points.length < 1000) return points;
  const columns = new Map();
  for (const point of points) {
    const column = Math.round(point[0]), ends = columns.get(column);
    if (!ends) columns.set(column, [point, point]);
    else if (point[1] < ends[0][1]) ends[0] = point;
    else if (point[1] > ends[1][1]) ends[1] = point;
  }
  return [...columns.values()].flat();
}

// Said in an empty plot.
export function empty(svg, text) {
  svg.replaceChildren();
  const width = svg.clientWidth || 600, height = svg.clientHeight || 200;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  label(svg, width / 2, height / 2, text, "mid");
}
