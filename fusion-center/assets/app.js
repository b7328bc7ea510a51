// The page: live data in, pictures out.

import { drawError, drawLatency } from "./charts.js";
import { showClocks, showOffsets } from "./clocks.js";
import { startControls } from "./controls.js";
import { byId, choices, say } from "./dom.js";
import { SiteMap } from "./map.js";
import { SideView } from "./side.js";
import { showTracks } from "./tracks.js";
import { showHealth, showNodes, showPaths, showStages, showWires } from "./panels.js";

const KEPT = 240;
const GLANCE_MS = 100;
// A silence this long is no data. A source that is slower than that by itself gets its own pace and a half.
const STALE_MS = 700;
const PACES = 5;

const map = new SiteMap(byId("map"), byId("close"), byId("hover"));
const side = new SideView(byId("side"));
const view = {
  fixes: [], leastWire: [], paces: [], lastFixAt: null, connected: false, paused: false, chosen: null, status: null, evicted: false,
};

function choose(node) {
  view.chosen = view.chosen === node ? null : node;
  map.choose(view.chosen);
  if (view.status) showStatus(view.status);
  if (view.fixes.length && !view.paused) showPaths(view.fixes.at(-1), view.chosen);
}

function showStatus(status) {
  view.status = status;
  showNodes(status, view.leastWire, view.chosen, choose);
  const indices = status.nodes.map(({ index }) => index);
  choices(byId("node"), ["all", ...indices], view.chosen ?? "all", (node) => (node === "all" ? "all" : `${node}`));
  showHealth(status, view.fixes.at(-1));
  showStages(status.latency_ms);
  showClocks(status, view.fixes, view.chosen);
}

function stageTimes({ timing }) {
  const worst = (values) => (values.length ? Math.max(...values) : 0);
  return [worst(timing.emit_ms), worst(timing.filter_ms), worst(timing.wire_ms), timing.assemble_ms, timing.angles_ms, timing.locate_ms];
}

function showFix(fix) {
  map.show(fix);
  side.show(fix);
  showPaths(fix, view.chosen);
  showTracks(fix, view.status?.targets);
  const position = fix.position_m ? `(${fix.position_m.map((v) => v.toFixed(2)).join(", ")}) m` : "no position";
  say(byId("headline"), `frame ${fix.frame} · ${position} · ${fix.status} · ${fix.paths} of ${fix.snr_db.length ** 2} paths`);
  byId("headline").dataset.frame = fix.frame;
  drawError(byId("error"), view.fixes.map(({ truth }) => ({ error: truth?.error_m, bound: truth?.bound_rms_m })));
  drawLatency(byId("latency"), view.fixes.map(stageTimes));
  showWires(view.fixes);
  if (view.status) showOffsets(view.status.nodes, view.fixes, view.chosen);
}

function takeFix(fix) {
  const now = Date.now();
  // The same frame again: its truth came after it.
  if (view.fixes.at(-1)?.frame === fix.frame && view.fixes.at(-1)?.timing.run === fix.timing.run) view.fixes.pop();
  if (view.lastFixAt != null) view.paces = [...view.paces, now - view.lastFixAt].slice(-PACES);
  view.lastFixAt = now;
  view.fixes.push(fix);
  if (view.fixes.length > KEPT) view.fixes.shift();
  fix.timing.nodes.forEach((node, i) => {
    view.leastWire[node] = Math.min(view.leastWire[node] ?? Infinity, fix.timing.wire_ms[i]);
  });
  if (!view.paused) showFix(fix);
}

function takeStatus(status) {
  view.connected = true;
  // A page that is opened after the last fix says since when there is none.
  if (status.last_fix_ns != null) view.lastFixAt ??= Date.now() - (status.now_ns - status.last_fix_ns) / 1e6;
  if (!view.paused) showStatus(status);
}

function patienceMs() {
  const pace = [...view.paces].sort((a, b) => a - b)[view.paces.length >> 1] ?? 0;
  return Math.max(STALE_MS, 1.5 * pace);
}

// A frozen picture is never shown as live.
function showState() {
  const badge = byId("state"), age = view.lastFixAt == null ? null : Date.now() - view.lastFixAt;
  const since = view.lastFixAt == null ? "" : ` since ${new Date(view.lastFixAt).toLocaleTimeString()} (${Math.floor(age / 1000)} s)`;
  let state = "live", text = "live";
  if (view.evicted) [state, text] = ["stale", "closed: too many viewers; reload to watch here"];
  else if (!view.connected) [state, text] = ["stale", `no connection${since}`];
  else if (age == null) [state, text] = ["stale", "no data yet"];
  else if (age > patienceMs()) [state, text] = ["stale", `no data${since}`];
  else if (view.paused) [state, text] = ["paused", "paused"];
  say(badge, text);
  badge.dataset.state = state;
  for (const id of ["map", "side", "close", "paths", "error", "latency", "offsets"]) byId(id).classList.toggle("stale", state === "stale");
}

function pause() {
  view.paused = !view.paused;
  byId("pause").setAttribute("aria-pressed", view.paused);
  say(byId("pause"), view.paused ? "Resume" : "Pause");
  if (!view.paused && view.fixes.length) showFix(view.fixes.at(-1));
  showState();
}

async function start() {
  byId("pause").addEventListener("click", pause);
  byId("node").addEventListener("change", ({ target }) => {
    view.chosen = null;
    choose(target.value === "all" ? null : Number(target.value));
  });
  byId("zoom-in").addEventListener("click", () => map.zoom(1 / 1.5));
  byId("zoom-out").addEventListener("click", () => map.zoom(1.5));
  byId("zoom-fit").addEventListener("click", () => map.fit());
  setInterval(showState, GLANCE_MS);
  const site = await (await fetch("/api/site")).json();
  map.setSite(site);
  side.setSite(site);
  const live = new EventSource("/api/live");
  live.addEventListener("open", () => (view.connected = true));
  live.addEventListener("error", () => (view.connected = false));
  // A page that gave way to another does not come back by itself: they would displace each other without end.
  live.addEventListener("evicted", () => {
    live.close();
    view.evicted = true;
  });
  live.addEventListener("fix", (event) => takeFix(JSON.parse(event.data)));
  live.addEventListener("status", (event) => takeStatus(JSON.parse(event.data)));
  await startControls();
}

start();
