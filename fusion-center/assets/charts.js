// The plots: error against the bound, its distribution, consistency, clocks.

import { element, fixed, label, quantile } from "./dom.js";
import { axis, empty, frame, line, logAxis, timeAxis } from "./plot.js";

const UNKNOWN = "the truth is not known";

const metres = (value) => (value >= 0.995 ? `${Math.round(value)} m` : value >= 0.00995 ? `${Math.round(100 * value)} cm` : `${Number((1000 * value).toPrecision(1))} mm`);

// A hole of more than two seconds is a hole in the line, unless the frames come more slowly.
function gapOf({ fixes }, across) {
  const steps = fixes.slice(1).map(({ t }, i) => t - fixes[i].t), usual = quantile(steps, 0.5) || 0, from = fixes[0]?.t ?? 0;
  return across(from + Math.max(2000, 4 * usual)) - across(from);
}

export function drawError(svg, span) {
  const judged = span.fixes.filter(({ error_m, bound_rms_m }) => error_m > 0 && bound_rms_m > 0);
  if (judged.length < 2) return empty(svg, UNKNOWN);
  const values = judged.flatMap(({ error_m, bound_rms_m }) => [error_m, bound_rms_m]);
  // A few errors may be below: small ones say little and would flatten the rest.
  const low = Math.min(quantile(values, 0.04), ...judged.map(({ bound_rms_m }) => bound_rms_m));
  const place = frame(svg, timeAxis(svg, span.from, span.to), logAxis(low, Math.max(...values), metres));
  const gap = gapOf(span, place.across), points = (key) => judged.map((fix) => [place.across(fix.t), place.up(fix[key])]);
  line(svg, "line-error", points("error_m"), gap);
  line(svg, "line-bound", points("bound_rms_m"), gap);
  label(svg, place.left + 8, place.top + 12, "distance to the truth", "text-error");
  label(svg, place.left + 190, place.top + 12, "exact bound", "text-bound");
}

// A covariance as the half of it: L with L L^T = C.
function half(triangle) {
  const count = triangle.length === 6 ? 3 : 2, at = (i, j) => triangle[Math.min(i, j) * count - (Math.min(i, j) * (Math.min(i, j) + 1)) / 2 + Math.max(i, j)];
  const lower = Array.from({ length: count }, () => Array(count).fill(0));
  for (let i = 0; i < count; i++) {
    for (let j = 0; j <= i; j++) {
      const rest = at(i, j) - lower[i].slice(0, j).reduce((sum, v, k) => sum + v * lower[j][k], 0);
      lower[i][j] = i === j ? Math.sqrt(Math.max(rest, 0)) : rest / (lower[j][j] || 1);
    }
  }
  return lower;
}

// Normal numbers that are the same on every page: a Halton sequence through Box and Muller's formula.
const NORMALS = Array.from({ length: 64 }, (_, i) => {
  const halton = (base) => {
    let value = 0;
    for (let n = i + 1, part = 1 / base; n > 0; n = Math.floor(n / base), part /= base) value += part * (n % base);
    return value;
  };
  const pair = (a, b) => [Math.sqrt(-2 * Math.log(a)) * Math.cos(2 * Math.PI * b), Math.sqrt(-2 * Math.log(a)) * Math.sin(2 * Math.PI * b)];
  return [...pair(halton(2), halton(3)), pair(halton(5), halton(7))[0]];
});

// Errors that a normal error of the bound's covariance would make, for a sample of the fixes.
function boundErrors(fixes) {
  const every = Math.max(1, Math.floor(fixes.length / 150));
  return fixes.filter((fix, i) => i % every === 0 && fix.bound_m2).flatMap(({ bound_m2 }) => {
    const lower = half(bound_m2);
    return NORMALS.map((z) => Math.hypot(...lower.map((row) => row.reduce((sum, v, k) => sum + v * z[k], 0))));
  });
}

export function drawCdf(svg, { fixes }) {
  const errors = fixes.map(({ error_m }) => error_m).filter((v) => v != null).sort((a, b) => a - b);
  const ideal = boundErrors(fixes).sort((a, b) => a - b);
  if (errors.length < 10 || !ideal.length) return empty(svg, UNKNOWN);
  const most = 1.15 * Math.max(quantile(errors, 0.98), quantile(ideal, 0.98)), scale = most < 0.03 ? 1000 : most < 3 ? 100 : 1;
  const unit = { 1000: "mm", 100: "cm", 1: "m" }[scale];
  const place = frame(svg, axis(0, most * scale, 6, (v) => `${Number(v.toPrecision(6))} ${unit}`), axis(0, 100, 5, (v) => `${v} %`));
  const curve = (values) => values.map((v, i) => [place.across(v * scale), place.up((100 * (i + 1)) / values.length)]).filter(([x]) => x <= place.right);
  line(svg, "line-bound", curve(ideal));
  line(svg, "line-error", curve(errors));
  const said = (values) => [0.5, 0.95].map((share) => Number((scale * quantile(values, share)).toPrecision(3))).join(" / ");
  label(svg, place.right - 6, place.bottom - 46, `median / 95 % in ${unit}`, "end");
  label(svg, place.right - 6, place.bottom - 28, `error ${said(errors)}`, "text-error end");
  label(svg, place.right - 6, place.bottom - 10, `exact bound ${said(ideal)}`, "text-bound end");
}

// Quantile of the chi-square distribution by Wilson and Hilferty, for a normal quantile.
const chi2 = (freedom, normal) => freedom * (1 - 2 / (9 * freedom) + normal * Math.sqrt(2 / (9 * freedom))) ** 3;

const BINS = 24;

export function drawNees(svg, span, expected = 2) {
  const bins = Array.from({ length: BINS }, () => []), width = (span.to - span.from) / BINS;
  for (const { t, nees } of span.fixes) if (nees != null) bins[Math.min(BINS - 1, Math.floor((t - span.from) / width))].push(nees);
  const means = bins.map((values, i) => {
    const count = values.length, freedom = count * expected;
    return count >= 3 && { t: span.from + (i + 0.5) * width, mean: values.reduce((a, b) => a + b) / count, low: chi2(freedom, -1.96) / count, high: chi2(freedom, 1.96) / count };
  }).filter(Boolean);
  if (!means.length) return empty(svg, UNKNOWN);
  const most = Math.min(Math.max(...means.flatMap(({ mean, high }) => [mean, high])), 6 * expected);
  const place = frame(svg, timeAxis(svg, span.from, span.to), axis(0, most, 5, (v) => `${Number(v.toPrecision(6))}`));
  const step = (place.right - place.left) / BINS;
  for (const { t, low, high } of means) {
    const y = place.up(high);
    element("rect", { class: "band", x: place.across(t) - step / 2, y, width: step, height: place.up(low) - y }, svg);
  }
  line(svg, "line-expected", [[place.left, place.up(expected)], [place.right, place.up(expected)]]);
  for (const { t, mean, low, high } of means) element("circle", { class: mean < low || mean > high ? "point outside" : "point", cx: place.across(t), cy: place.up(mean), r: 4 }, svg);
  const inside = means.filter(({ mean, low, high }) => mean >= low && mean <= high).length;
  label(svg, place.left + 8, place.top + 12, `${inside} of ${means.length} in the 95 % band; ${expected} is consistent`, "value");
}

// For every node its hue, the time at which its clock has stepped, and whether it stands back.
export function drawOffsets(svg, span, nodes) {
  const known = span.fixes.filter(({ clock_offset_ns }) => clock_offset_ns?.length);
  const values = known.flatMap((fix) => [...fix.clock_offset_ns, ...(fix.true_clock_offset_ns ?? [])]);
  if (known.length < 2) return empty(svg, "no clock is known yet");
  const low = Math.min(...values), high = Math.max(low + 1, ...values), large = high - low > 1900;
  const words = (v) => `${Number((large ? v / 1000 : v).toPrecision(6))} ${large ? "µs" : "ns"}`.replace("-", "−");
  const place = frame(svg, timeAxis(svg, span.from, span.to), axis(low, high, 5, words)), gap = gapOf(span, place.across);
  nodes.forEach(({ hue, step, back }, node) => {
    const group = element("g", { "data-clock": node, "data-hue": hue, class: back ? "back" : "" }, svg);
    group.style.setProperty("--hue", hue);
    if (step != null && step >= span.from) element("path", { class: "line line-step", d: `M${place.across(step)} ${place.top}V${place.bottom}` }, group);
    for (const [key, kind] of [["clock_offset_ns", "line-offset"], ["true_clock_offset_ns", "line-truth"]]) {
      const points = known.filter((fix) => fix[key]?.[node] != null).map((fix) => [place.across(fix.t), place.up(fix[key][node])]);
      if (points.length) line(group, kind, points, gap);
    }
  });
  label(svg, place.left + 8, place.top + 12, "offset by node; truth dashed", "value");
}

const STAGES = ["emit", "filter", "wire", "assemble", "angles", "locate"];

// The stages of a frame where they were in time, and their quantiles over a span.
export function drawLatency(svg, { timing }, span) {
  const sums = timing.nodes.map((_, i) => timing.emit_ms[i] + timing.filter_ms[i] + timing.wire_ms[i]);
  const last = sums.indexOf(Math.max(...sums)), total = timing.total_ms ?? timing.fusion_ms, arrived = total - timing.fusion_ms;
  const at = (list) => (last < 0 ? 0 : list[last]), [emit, filter, wire] = [timing.emit_ms, timing.filter_ms, timing.wire_ms].map(at);
  const { assemble_ms, angles_ms, locate_ms } = timing;
  const bars = [
    ["emit", 0, emit], ["filter", emit, filter], ["wire", Math.max(arrived - wire, 0), wire], ["assemble", Math.max(arrived - assemble_ms, 0), assemble_ms],
    ["angles", total - locate_ms - angles_ms, angles_ms], ["locate", total - locate_ms, locate_ms], ["total", 0, total],
  ];
  svg.replaceChildren();
  const width = svg.clientWidth || 600, height = svg.clientHeight || 208, left = 70, right = width - 128, rows = bars.length;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const top = 20, row = (height - top - 22) / rows, to = 1.03 * Math.max(total, 1e-3), { ticks } = axis(0, to, 5, (v) => `${Number(v.toPrecision(6))} ms`);
  const across = (v) => left + ((right - left) * v) / to;
  for (const [value, text] of ticks.filter(([value]) => value <= to)) {
    element("path", { class: "grid fine", d: `M${across(value)} ${top}V${height - 20}` }, svg);
    label(svg, across(value), height - 5, text, "mid");
  }
  label(svg, width - 66, 13, "p50 ms", "end");
  label(svg, width - 6, 13, "p99 ms", "end");
  bars.forEach(([name, from, size], i) => {
    const y = top + i * row, key = STAGES.indexOf(name);
    label(svg, left - 8, y + row / 2 + 4, name, "end");
    element("rect", { class: key < 0 ? "stage sum" : "stage", "data-stage": name, x: across(from), y: y + row * 0.15, width: Math.max(across(from + size) - across(from), 1.5), height: row * 0.7, rx: 2 }, svg);
    const values = span.fixes.map(({ stages_ms, total_ms }) => (key < 0 ? total_ms : stages_ms?.[key])).filter((v) => v != null);
    for (const [share, x] of [[0.5, width - 66], [0.99, width - 6]]) {
      const value = quantile(values, share);
      label(svg, x, y + row / 2 + 4, fixed(value, value < 100 ? 2 : 0), "end value");
    }
  });
}
