// The page: live data in, pictures out.

import { drawCdf, drawError, drawLatency, drawNees } from "./charts.js";
import { showClocks } from "./clocks.js";
import { startControls } from "./controls.js";
import { byId, choices, clockTime, fixed, press, say } from "./dom.js";
import { showEvents } from "./events.js";
import { showNumbers, showVerdict } from "./headline.js";
import { SiteMap } from "./map.js";
import { showHealth, showNodes, showPaths } from "./panels.js";
import { startSaving } from "./save.js";
import { SideView } from "./side.js";
import { Store } from "./store.js";
import { showTracks } from "./tracks.js";

const GLANCE_MS = 100;
const PLOTS_MS = 500;
// A silence this long is no data. A source that is slower than that by itself gets its own pace and a half.
const STALE_MS = 700;
const PACES = 5;
const PICTURES = ["map", "surface", "side", "close", "paths", "error", "latency", "cdf", "nees", "offsets", "numbers"];

const map = new SiteMap(byId("map"), byId("close"), byId("hover"));
const side = new SideView(byId("side"));
const store = new Store();
const view = { latest: null, paces: [], lastFixAt: null, connected: false, paused: false, chosen: null, status: null, evicted: false, seconds: 120, live: false };

function choose(node) {
  view.chosen = view.chosen === node ? null : node;
  map.choose(view.chosen);
  if (view.status) showStatus(view.status);
  if (view.latest && !view.paused) showPaths(view.latest, view.chosen, (path) => map.point(path));
}

function showStatus(status) {
  view.status = status;
  const span = store.last(view.seconds);
  showNumbers(status, view.latest);
  showNodes(status, span, view.chosen, choose);
  choices(byId("node"), ["all", ...status.nodes.map(({ index }) => index)], view.chosen ?? "all", String);
  showHealth(status, view.latest);
  showEvents(status.last_event);
}

function showFix(fix) {
  map.show(fix);
  side.show(fix);
  showPaths(fix, view.chosen, (path) => map.point(path));
  showTracks(fix, view.status?.targets);
  const position = fix.position_m ? `(${fix.position_m.map((v) => fixed(v, 2)).join(", ")}) m` : "no position";
  say(byId("summary"), `frame ${fix.frame} · ${position} · ${fix.paths} of ${fix.snr_db.length ** 2} paths`);
  byId("headline").dataset.frame = fix.frame;
}

function showPlots() {
  if (view.paused || !store.fixes.length) return;
  const span = store.last(view.seconds);
  drawError(byId("error"), span);
  if (view.latest) drawLatency(byId("latency"), view.latest, span);
  say(byId("latency-note"), `from the intended transmission on; quantiles of ${span.fixes.length} fixes of the last ${view.seconds < 60 ? `${view.seconds} s` : `${view.seconds / 60} min`}`);
  drawCdf(byId("cdf"), span);
  drawNees(byId("nees"), span, view.status?.nees_expected ?? 2);
  if (view.status) showClocks(view.status, view.latest, span, view.chosen);
}

function takeFix(fix) {
  const now = Date.now();
  if (view.lastFixAt != null) view.paces = [...view.paces, now - view.lastFixAt].slice(-PACES);
  view.lastFixAt = now;
  store.take(fix);
  if (view.paused) return;
  const first = !view.latest;
  view.latest = fix;
  showFix(fix);
  if (first) showPlots();
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
  const since = view.lastFixAt == null ? "" : ` since ${clockTime(view.lastFixAt)} (${Math.floor(age / 1000)} s)`;
  let state = "live", text = "live";
  if (view.evicted) [state, text] = ["stale", "closed: too many viewers; reload to watch here"];
  else if (!view.connected) [state, text] = ["stale", `no connection${since}`];
  else if (age == null) [state, text] = ["stale", "no data yet"];
  else if (age > patienceMs()) [state, text] = ["stale", `no data${since}`];
  else if (view.paused) [state, text] = ["paused", "paused"];
  say(badge, text);
  badge.dataset.state = state;
  for (const id of PICTURES) byId(id).classList.toggle("stale", state === "stale");
  if (!view.paused || state === "stale") showVerdict(store.fixes, view.latest, state !== "stale");
}

function pause() {
  view.paused = !view.paused;
  press(byId("pause"), view.paused);
  say(byId("pause"), view.paused ? "Resume" : "Pause");
  showState();
}

function setSpan(seconds) {
  view.seconds = seconds;
  for (const button of byId("spans").children) press(button, Number(button.dataset.span) === seconds);
  showPlots();
}

// The theme of the system, then the other one.
function changeTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  map.surface.picture = null;
  map.redraw();
}

async function start() {
  byId("pause").addEventListener("click", pause);
  byId("theme").addEventListener("click", changeTheme);
  byId("spans").addEventListener("click", ({ target }) => target.dataset.span && setSpan(Number(target.dataset.span)));
  byId("node").addEventListener("change", ({ target }) => {
    view.chosen = null;
    choose(target.value === "all" ? null : Number(target.value));
  });
  byId("zoom-in").addEventListener("click", () => map.view.zoom(1.5));
  byId("zoom-out").addEventListener("click", () => map.view.zoom(1 / 1.5));
  for (const mode of ["targets", "site"]) byId(`view-${mode}`).addEventListener("click", () => map.look(mode));
  startSaving();
  setSpan(view.seconds);
  setInterval(showState, GLANCE_MS);
  const [site, past] = await Promise.all(["/api/site", "/api/history"].map(async (path) => (await fetch(path)).json()));
  store.seed(past.fixes);
  map.seed(past.fixes);
  map.setSite(site);
  side.setSite(site);
  showPlots();
  setInterval(showPlots, PLOTS_MS);
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
