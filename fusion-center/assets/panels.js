// The panels of figures: paths, nodes, health.

import { byId, facts, fixed, keep, make, press, quantile, say } from "./dom.js";

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

// A table with a row for every sensing and a column for every reflecting IRS. One cell at a time can be reached by Tab, the others by
// arrow keys.
function buildPaths(table, count, point) {
  table.replaceChildren();
  const corner = make("td"), head = make("tr");
  head.append(corner, ...Array.from({ length: count }, (_, k) => {
    const cell = make("th", k);
    cell.scope = "col";
    return cell;
  }));
  table.append(head);
  for (let l = 0; l < count; l++) {
    const row = make("tr"), name = make("th", l);
    name.scope = "row";
    row.append(name, ...Array.from({ length: count }, (_, k) => {
      const cell = make("td");
      cell.dataset.path = `${l},${k}`;
      cell.tabIndex = l + k === 0 ? 0 : -1;
      for (const event of ["pointerenter", "focus"]) cell.addEventListener(event, () => point([l, k]));
      for (const event of ["pointerleave", "blur"]) cell.addEventListener(event, () => point(null));
      return cell;
    }));
    table.append(row);
  }
  table.onkeydown = (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const at = event.target.dataset.path?.split(",").map(Number);
    const next = move && at && table.querySelector(`[data-path="${at[0] + move[0]},${at[1] + move[1]}"]`);
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}

export function showPaths(fix, chosen, point) {
  const count = fix.snr_db.length, table = byId("paths");
  table.className = `paths k${count > 12 ? "16" : count > 6 ? "8" : "3"}`;
  if (table.dataset.count !== String(count)) buildPaths(table, count, point);
  table.dataset.count = count;
  for (const cell of table.querySelectorAll("td[data-path]")) {
    const [l, k] = cell.dataset.path.split(",").map(Number), snr = fix.snr_db[l][k], state = pathState(fix, l, k);
    const grade = snr == null ? `${state}-path` : `q${GRADES_DB.filter((level) => snr >= level).length}`;
    const kind = [grade, state === "excluded" && "excluded-path", (chosen === l || chosen === k) && "chosen"].filter(Boolean).join(" ");
    if (cell.className !== kind) cell.className = kind;
    say(cell, snr == null ? (state === "late" ? "…" : "×") : fixed(snr, count > 6 ? 0 : 1));
    const title = `sensed at IRS ${l}, reflected by IRS ${k}: ${snr == null ? state : fixed(snr, 1, " dB")}${state === "excluded" ? ", excluded" : ""}`;
    if (cell.title !== title) cell.title = title;
    cell.dataset.state = state;
  }
  const nodes = [...Array(count).keys()].filter((l) => !fix.nodes.includes(l) && isLate(l));
  const named = [...nodes.map((l) => `node ${l} is late`), ...fix.excluded.map((text) => `excluded: ${text}`), ...fix.cautions];
  say(byId("excluded"), named.join("; "));
}

export function showNodes(status, span, chosen, choose) {
  noteLate(status.nodes);
  const create = ({ index }) => {
    const row = make("tr"), pick = make("button", null, "pick");
    row.append(...Array.from({ length: 8 }, () => make("td")));
    pick.type = "button";
    pick.addEventListener("click", () => choose(index));
    row.children[0].append(pick);
    row.dataset.node = index;
    return row;
  };
  const wires = new Map();
  for (const { wire } of span.fixes) for (const [node, ms] of wire ?? []) wires.set(node, [...(wires.get(node) ?? []), ms]);
  keep(byId("nodes"), status.nodes, create, (row, node) => {
    const silentMs = node.last_report_ns == null ? null : (status.now_ns - node.last_report_ns) / 1e6;
    const state = !node.connected ? "missing" : silentMs == null || silentMs > SILENT_MS ? "silent" : isLate(node.index) ? "late" : "connected";
    row.dataset.state = state;
    row.className = [!node.connected && "gone", chosen === node.index && "chosen"].filter(Boolean).join(" ");
    row.title = node.identity;
    const values = [`${node.index} ${node.identity}`, state, node.last_frame ?? "–", node.fused, node.late,
      node.dropped + node.dropped_at_node, fixed(quantile(wires.get(node.index) ?? [], 0.5), 2), node.unaccounted];
    values.forEach((value, i) => say(i ? row.children[i] : row.children[0].firstChild, value));
    press(row.children[0].firstChild, chosen === node.index);
  });
}

function overload({ overloaded, frames_offered, frames_shed, frames_waiting, oldest_waiting_ms }) {
  if (!overloaded) return "";
  const oldest = fixed(oldest_waiting_ms / 1000, 1, " s");
  return `overloaded: ${frames_waiting} frames wait for a solver, the oldest for ${oldest}; of ${frames_offered} offered, ${frames_shed} were shed`;
}

export function showHealth(status, latest) {
  say(byId("overload"), overload(status.counts));
  const unaccounted = status.nodes.reduce((sum, node) => sum + Math.abs(node.unaccounted), 0);
  const ends = status.nees_interval, nees = ends ? `${fixed(status.nees, 2)} (${fixed(ends[0], 2)} to ${fixed(ends[1], 2)})` : fixed(status.nees, 2);
  facts(byId("health"), [
    ["nominal", status.nominal], ["degraded", status.degraded], ["doubtful", status.doubtful], ["no fix", status.without_fix],
    ["shed", status.counts.frames_shed], ["unaccounted", unaccounted], ["refused", status.counts.refused_reports],
    [`NEES (${status.nees_expected ?? 2} is consistent)`, nees], ["method", latest?.method ?? "–"], ["source", latest?.source ?? "–"],
  ]);
}
