// What may be changed, where that is allowed: the page asks, the others decide.

import { byId, choices, say } from "./dom.js";

const AGAIN_MS = 5000;
const POWERS_DB = [-20, -15, -10, -5, 0, 5, 10];
let asking = false, view = null;

// Selects: who has them, their choices, what is chosen, and what is asked for.
const SELECTS = [
  { id: "motion", holder: "simulator", names: (state) => state.motions, current: (state) => state.motion, body: (name) => ({ name }) },
  { id: "targets", holder: "simulator", names: (state) => Array.from({ length: state.most_targets + 1 }, (_, i) => i), current: (state) => state.targets, body: (count) => ({ count: Number(count) }) },
  { id: "power", holder: "simulator", names: (state) => powers(state), current: (state) => state.power_dbm, body: (dbm) => ({ dbm: Number(dbm) }), words: (dbm) => `${dbm} dBm` },
  { id: "profile", holder: "backhaul", names: (state) => state.profiles, current: (state) => state.profile, body: (name) => ({ name }) },
];

function powers({ power_dbm, scenario_power_dbm }) {
  const all = POWERS_DB.map((db) => scenario_power_dbm + db);
  return all.includes(power_dbm) ? all : [...all, power_dbm].sort((a, b) => a - b);
}

const which = () => Number(byId("which").value);
const isRunning = () => view?.nodes?.find?.(({ index }) => index === which())?.running;
const linkOf = () => view?.backhaul?.links?.find?.(({ name }) => name === `node-${which()}`) ?? view?.backhaul?.links?.[which()];

// Buttons: whether they can be used, what they say, and what is asked for.
const BUTTONS = [
  { id: "kill", there: () => isRunning() != null, words: () => (isRunning() === false ? "Start node" : "Kill node"), subject: "node", body: () => ({ index: which(), run: !isRunning() }) },
  { id: "cut", there: () => linkOf(), words: () => (linkOf()?.cut ? "Restore link" : "Cut link"), subject: "link", body: () => ({ name: linkOf().name, cut: !linkOf().cut }) },
  { id: "clock", there: () => view?.simulator?.nodes > 0, words: () => "Step clock", subject: "clock", body: () => ({ node: which(), step_ns: Number(byId("step").value) }) },
];

function show(state) {
  view = state;
  byId("controls").hidden = !view.allowed;
  if (!view.allowed) return false;
  const usable = (holder) => view[holder] && !view[holder].error;
  for (const part of byId("controls").querySelectorAll("[data-holder]")) part.hidden = !view[part.dataset.holder];
  for (const { id, holder, names, current, words } of SELECTS) {
    byId(id).disabled = asking || !usable(holder);
    if (usable(holder) && document.activeElement !== byId(id)) choices(byId(id), names(view[holder]), current(view[holder]), words);
  }
  const count = view.simulator?.nodes ?? view.nodes?.length ?? view.backhaul?.links?.length ?? 0;
  choices(byId("which"), Array.from({ length: count }, (_, i) => i), Math.min(Math.max(byId("which").selectedIndex, 0), count - 1));
  showButtons();
  const silent = ["simulator", "backhaul", "nodes"].filter((holder) => view[holder]?.error);
  if (silent.length) say(byId("said"), silent.map((holder) => `the ${holder} cannot be asked: ${view[holder].error}`).join("; "));
  return true;
}

function showButtons() {
  for (const { id, there, words } of BUTTONS) {
    byId(id).disabled = asking || !there();
    say(byId(id), words());
  }
}

async function look() {
  return show(await (await fetch("/api/control")).json());
}

async function change(control, subject, body) {
  asking = true;
  control.disabled = true;
  say(byId("said"), "changing …");
  try {
    const answer = await fetch(`/api/control/${subject}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    const said = await answer.json();
    asking = false;
    control.blur();
    say(byId("said"), answer.ok ? "" : said.error);
    if (answer.ok) show(said);
    else await look();
  } catch {
    asking = false;
    say(byId("said"), "no answer");
  }
  control.disabled = false;
  showButtons();
}

// Shows the controls if there are any, and follows changes that others make.
export async function startControls() {
  for (const { id, body } of SELECTS) byId(id).addEventListener("change", () => change(byId(id), id, body(byId(id).value)));
  for (const { id, subject, body } of BUTTONS) byId(id).addEventListener("click", () => change(byId(id), subject, body()));
  byId("which").addEventListener("change", showButtons);
  if (await look()) setInterval(() => asking || look().catch(() => {}), AGAIN_MS);
}
