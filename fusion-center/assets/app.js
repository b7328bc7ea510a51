// The page: live data in, pictures out. Text from outside only ever becomes text.

import { SiteMap } from "./map.js";
import { STAGES, drawError, drawLatency, quantile } from "./charts.js";

const KEPT = 240;
const STALE_MS = 1000;
const byId = (id) => document.getElementById(id);
const map = new SiteMap(byId("map"), byId("close"), byId("hover"));
const view = { fixes: [], leastWire: [], lastFixAt: null, connected: false, paused: false, chosen: null };

function make(name, text, kind) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function facts(list, rows) {
  list.replaceChildren(...rows.map(([name, value]) => {
    const row = make("div");
    row.append(make("dt", name), make("dd", value));
    return row;
  }));
}

const fixed = (value, digits, unit = "") => (value == null || Number.isNaN(value) ? "–" : value.toFixed(digits) + unit);
const centimetres = (value) => fixed(value == null ? null : 100 * value, 1, " cm");

function worst(values) {
  return values.length ? Math.max(...values) : 0;
}

function stageTimes({ timing }) {
  return [worst(timing.emit_ms), worst(timing.filter_ms), worst(timing.wire_ms), timing.assemble_ms, timing.angles_ms, timing.locate_ms];
}

function showPaths(fix) {
  const count = fix.snr_db.length, grid = byId("paths");
  grid.style.gridTemplateColumns = `repeat(${count + 1}, minmax(0, 1fr))`;
  const cells = [make("div", "", "head")];
  for (let k = 0; k < count; k++) cells.push(make("div", `${k}`, "head"));
  for (let l = 0; l < count; l++) {
    cells.push(make("div", `${l}`, "head"));
    for (let k = 0; k < count; k++) {
      const snr = fix.snr_db[l][k];
      const names = [`(sensor ${l}, reflector ${k})`, `sensed at IRS ${l}:`, `reflected by IRS ${k}:`, `all delays of IRS ${l}:`, `all delays of IRS ${k}:`];
      const excluded = fix.excluded.some((text) => names.some((name) => text.includes(name)));
      const grade = snr == null ? "missing-path" : `q${[5, 10, 15, 20].filter((level) => snr >= level).length}`;
      const cell = make("div", snr == null ? "×" : snr.toFixed(count > 8 ? 0 : 1), grade);
      cell.title = `path (${l}, ${k}): ${snr == null ? "missing" : `${snr.toFixed(1)} dB`}${excluded ? ", excluded" : ""}`;
      cell.dataset.path = `${l},${k}`;
      cell.dataset.state = snr == null ? "missing" : excluded ? "excluded" : "present";
      if (excluded) cell.classList.add("excluded-path");
      if (view.chosen === l || view.chosen === k) cell.classList.add("chosen");
      cells.push(cell);
    }
  }
  grid.replaceChildren(...cells);
  byId("excluded").textContent = [...fix.excluded, ...fix.cautions].join("; ");
}

function showNodes(status) {
  const rows = status.nodes.map((node) => {
    const row = make("tr", null, node.connected ? "" : "gone");
    const silentMs = node.last_report_ns == null ? null : (status.now_ns - node.last_report_ns) / 1e6;
    const state = !node.connected ? "missing" : silentMs == null || silentMs > 2 * STALE_MS ? "silent" : "connected";
    row.dataset.node = node.index;
    row.dataset.state = state;
    row.tabIndex = 0;
    if (view.chosen === node.index) row.classList.add("chosen");
    const values = [`${node.index} ${node.identity}`, state, node.last_frame ?? "–", node.fused, node.late,
      node.dropped + node.dropped_at_node, fixed(view.leastWire[node.index], 2), node.unaccounted];
    row.append(...values.map((value) => make("td", value)));
    const choose = () => {
      view.chosen = view.chosen === node.index ? null : node.index;
      map.choose(view.chosen);
      showNodes(status);
    };
    row.addEventListener("click", choose);
    row.addEventListener("keydown", (event) => event.key === "Enter" && choose());
    return row;
  });
  const focused = document.activeElement?.dataset?.node;
  byId("nodes").replaceChildren(...rows);
  if (focused != null) byId("nodes").querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
}

function showStatus(status) {
  showNodes(status);
  const closed = status.fixes + status.without_fix + status.counts.frames_shed + status.counts.frames_minority;
  const unaccounted = status.nodes.reduce((sum, node) => sum + Math.abs(node.unaccounted), 0);
  const latest = view.fixes.at(-1);
  facts(byId("health"), [
    ["fixes", status.fixes], ["availability", closed ? fixed((100 * status.fixes) / closed, 1, " %") : "–"],
    ["nominal", status.nominal], ["unaccounted", unaccounted], ["shed", status.counts.frames_shed],
    ["refused", status.counts.refused_reports], ["iterations", latest?.iterations ?? "–"], ["source", latest?.source ?? "–"],
  ]);
  facts(byId("figures"), [
    ["rms error", centimetres(status.rms_error_m)], ["exact bound", centimetres(status.bound_rms_m)],
    ["gap", fixed(status.gap_db, 2, " dB")], ["NEES (2 is honest)", fixed(status.nees, 2)],
  ]);
  const legend = STAGES.map((name, i) => {
    const item = make("span");
    const quantiles = status.latency_ms[name];
    item.append(make("span", null, `key s${i}`), `${name} ${fixed(quantiles?.p50, 2)} / ${fixed(quantiles?.p99, 2)} ms`);
    return item;
  });
  byId("stages").replaceChildren(...legend, make("span", "  (p50 / p99)"));
}

function showFix(fix) {
  map.show(fix);
  showPaths(fix);
  const position = fix.position_m ? `(${fix.position_m.map((v) => v.toFixed(3)).join(", ")}) m` : "no position";
  byId("headline").textContent = `frame ${fix.frame}  ${position}  ${fix.status}  ${fix.paths} paths`;
  byId("headline").dataset.frame = fix.frame;
  drawError(byId("error"), view.fixes.map(({ truth }) => ({ error: truth?.error_m, bound: truth?.bound_rms_m })));
  drawLatency(byId("latency"), view.fixes.map(stageTimes));
  const wires = fix.nodes.map((node) => {
    const values = view.fixes.flatMap(({ timing }) => timing.wire_ms.filter((_, i) => timing.nodes[i] === node));
    return [`wire ${node}`, `${fixed(quantile(values, 0.5), 2)} / ${fixed(quantile(values, 0.99), 2)} ms`];
  });
  facts(byId("wires"), wires);
}

function takeFix(fix) {
  view.lastFixAt = Date.now();
  view.fixes.push(fix);
  if (view.fixes.length > KEPT) view.fixes.shift();
  fix.timing.nodes.forEach((node, i) => {
    view.leastWire[node] = Math.min(view.leastWire[node] ?? Infinity, fix.timing.wire_ms[i]);
  });
  if (!view.paused) showFix(fix);
}

// A frozen picture is never shown as live.
function showState() {
  const badge = byId("state"), age = view.lastFixAt == null ? null : Date.now() - view.lastFixAt;
  const since = view.lastFixAt == null ? "" : ` since ${new Date(view.lastFixAt).toLocaleTimeString()} (${Math.round(age / 1000)} s)`;
  let state = "live", text = "live";
  if (!view.connected) [state, text] = ["stale", `no connection${since}`];
  else if (age == null) [state, text] = ["stale", "no data yet"];
  else if (age > STALE_MS) [state, text] = ["stale", `no data${since}`];
  else if (view.paused) [state, text] = ["paused", "paused"];
  if (badge.textContent !== text) badge.textContent = text;
  badge.dataset.state = state;
  for (const id of ["map", "close", "paths"]) byId(id).classList.toggle("stale", state === "stale");
}

function pause() {
  view.paused = !view.paused;
  byId("pause").setAttribute("aria-pressed", view.paused);
  byId("pause").textContent = view.paused ? "Resume" : "Pause";
  if (!view.paused && view.fixes.length) showFix(view.fixes.at(-1));
  showState();
}

async function start() {
  byId("pause").addEventListener("click", pause);
  setInterval(showState, 200);
  map.setSite(await (await fetch("/api/site")).json());
  const live = new EventSource("/api/live");
  live.addEventListener("open", () => (view.connected = true));
  live.addEventListener("error", () => (view.connected = false));
  live.addEventListener("fix", (event) => takeFix(JSON.parse(event.data)));
  live.addEventListener("status", (event) => {
    view.connected = true;
    if (!view.paused) showStatus(JSON.parse(event.data));
  });
}

start();
