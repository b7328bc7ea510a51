// The panels of figures: paths, nodes, health, error, latency per stage and wire.

import { STAGES, quantile } from "./charts.js";
import { byId, centimetres, facts, fixed, keep, make, say } from "./dom.js";

const SILENT_MS = 2000;
const LATE_MS = 1500;
const GRADES_DB = [5, 10, 15, 20];

// When the count of late paths of each node last rose.
const late = { counts: [], at: [] };

function noteLate(nodes) {
  for (const { index, late: count } of nodes) {
    if (count > (late.counts[index] ?? count)) late.at[index] = Date.now();
    late.counts[index] = count;
  }
}

const isLate = (node) => Date.now() - (late.at[node] ?? -Infinity) < LATE_MS;

function pathState(fix, l, k) {
  if (fix.snr_db[l][k] == null) return isLate(l) ? "late" : "missing";
  const names = [`(sensor ${l}, reflector ${k})`, `sensed at IRS ${l}:`, `reflected by IRS ${k}:`, `all delays of IRS ${l}:`, `all delays of IRS ${k}:`];
  return fix.excluded.some((text) => names.some((name) => text.includes(name))) ? "excluded" : "present";
}

export function showPaths(fix, chosen) {
  const count = fix.snr_db.length, grid = byId("paths");
  grid.dataset.count = count;
  grid.className = `paths k${count > 12 ? "16" : count > 6 ? "8" : "3"}`;
  grid.style.setProperty("--count", count);
  const cells = [];
  for (let l = -1; l < count; l++) for (let k = -1; k < count; k++) cells.push([l, k]);
  keep(grid, cells, () => make("div"), (cell, [l, k]) => {
    if (l < 0 || k < 0) {
      say(cell, l < 0 && k < 0 ? "" : Math.max(l, k));
      cell.className = "head";
      return;
    }
    const snr = fix.snr_db[l][k], state = pathState(fix, l, k);
    const grade = snr == null ? `${state}-path` : `q${GRADES_DB.filter((level) => snr >= level).length}`;
    const marks = [grade, state === "excluded" && "excluded-path", (chosen === l || chosen === k) && "chosen"];
    const kind = marks.filter(Boolean).join(" ");
    if (cell.className !== kind) cell.className = kind;
    say(cell, snr == null ? (state === "late" ? "…" : "×") : snr.toFixed(count > 6 ? 0 : 1));
    const title = `sensed at IRS ${l}, reflected by IRS ${k}: ${snr == null ? state : fixed(snr, 1, " dB")}${state === "excluded" ? ", excluded" : ""}`;
    if (cell.title !== title) cell.title = title;
    cell.dataset.path = `${l},${k}`;
    cell.dataset.state = state;
  });
  const nodes = [...Array(count).keys()].filter((l) => !fix.nodes.includes(l) && isLate(l));
  const named = [...nodes.map((l) => `node ${l} is late`), ...fix.excluded.map((text) => `excluded: ${text}`), ...fix.cautions];
  say(byId("excluded"), named.join("; "));
}

export function showNodes(status, leastWire, chosen, choose) {
  noteLate(status.nodes);
  const create = ({ index }) => {
    const row = make("tr");
    row.append(...Array.from({ length: 8 }, () => make("td")));
    row.tabIndex = 0;
    row.dataset.node = index;
    row.addEventListener("click", () => choose(index));
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(index);
    });
    return row;
  };
  keep(byId("nodes"), status.nodes, create, (row, node) => {
    const silentMs = node.last_report_ns == null ? null : (status.now_ns - node.last_report_ns) / 1e6;
    const state = !node.connected ? "missing" : silentMs == null || silentMs > SILENT_MS ? "silent" : isLate(node.index) ? "late" : "connected";
    row.dataset.state = state;
    row.className = [!node.connected && "gone", chosen === node.index && "chosen"].filter(Boolean).join(" ");
    row.title = node.identity;
    const values = [`${node.index} ${node.identity}`, state, node.last_frame ?? "–", node.fused, node.late,
      node.dropped + node.dropped_at_node, fixed(leastWire[node.index], 2), node.unaccounted];
    values.forEach((value, i) => say(row.children[i], value));
  });
}

function overload({ overloaded, frames_offered, frames_shed, frames_waiting, oldest_waiting_ms }) {
  if (!overloaded) return "";
  const oldest = fixed(oldest_waiting_ms / 1000, 1, " s");
  return `overloaded: ${frames_waiting} frames wait for a solver, the oldest for ${oldest}; of ${frames_offered} offered, ${frames_shed} were shed`;
}

function interval(value, ends, unit) {
  const range = ends ? ` (${fixed(ends[0], 2)} to ${fixed(ends[1], 2)})` : "";
  return `${fixed(value, 2, unit)}${range}`;
}

export function showHealth(status, latest) {
  say(byId("overload"), overload(status.counts));
  const closed = status.fixes + status.without_fix + status.counts.frames_shed + status.counts.frames_minority;
  const unaccounted = status.nodes.reduce((sum, node) => sum + Math.abs(node.unaccounted), 0);
  facts(byId("health"), [
    ["fixes", status.fixes], ["availability", closed ? fixed((100 * status.fixes) / closed, 1, " %") : "–"],
    ["nominal", status.nominal], ["unaccounted", unaccounted], ["shed", status.counts.frames_shed],
    ["refused", status.counts.refused_reports], ["method", latest?.method ?? "–"], ["iterations", latest?.iterations ?? "–"], ["source", latest?.source ?? "–"],
  ]);
  facts(byId("figures"), [
    ["rms error", centimetres(status.rms_error_m)], ["exact bound", centimetres(status.bound_rms_m)],
    ["running gap", interval(status.gap_db, status.gap_db_interval, " dB")],
    [`NEES (${status.nees_expected ?? 2} is consistent)`, interval(status.nees, status.nees_interval)],
  ]);
}

export function showStages(latency) {
  const create = (_, i) => {
    const item = make("span", null, "stage");
    item.append(make("span", null, `key s${i}`), make("span"));
    return item;
  };
  keep(byId("stages"), STAGES, create, (item, name) => {
    const quantiles = latency[name];
    say(item.children[1], `${name} ${fixed(quantiles?.p50, 2)} / ${fixed(quantiles?.p99, 2)}`);
  });
}

export function showWires(fixes) {
  const values = new Map();
  for (const { timing } of fixes) {
    timing.nodes.forEach((node, i) => values.set(node, [...(values.get(node) ?? []), timing.wire_ms[i]]));
  }
  const nodes = [...values.keys()].sort((a, b) => a - b);
  facts(byId("wires"), nodes.map((node) => {
    const of = values.get(node);
    return [`node ${node}`, `${fixed(quantile(of, 0.5), 2)} / ${fixed(quantile(of, 0.99), 2)}`];
  }));
}
