// What may be changed, where that is allowed: the page asks, the others decide.

import { byId, choices, say } from "./dom.js";

const AGAIN_MS = 5000;
const SUBJECTS = [
  { select: "motion", holder: "simulator", current: "motion", names: "motions" },
  { select: "profile", holder: "backhaul", current: "profile", names: "profiles" },
];
let asking = false;

function show(view) {
  byId("controls").hidden = !view.allowed;
  for (const { select, holder, current, names } of SUBJECTS) {
    const state = view[holder];
    byId(select).parentElement.hidden = !state;
    byId(select).disabled = asking || !state?.[names];
    if (state?.[names]) choices(byId(select), state[names], state[current]);
    if (state?.error) say(byId("said"), `the ${holder} does not answer: ${state.error}`);
  }
  return view.allowed;
}

async function look() {
  const answer = await fetch("/api/control");
  return show(await answer.json());
}

async function change(select) {
  const name = select.value;
  asking = true;
  select.disabled = true;
  say(byId("said"), `changing to ${name} …`);
  try {
    const answer = await fetch(`/api/control/${select.id}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ name }),
    });
    const said = await answer.json();
    asking = false;
    say(byId("said"), answer.ok ? "" : said.error);
    if (answer.ok) show(said);
    else await look();
  } catch {
    asking = false;
    say(byId("said"), "no answer");
  }
  select.disabled = false;
}

// Shows the controls if there are any, and follows changes that others make.
export async function startControls() {
  for (const { select } of SUBJECTS) byId(select).addEventListener("change", () => change(byId(select)));
  if (await look()) setInterval(() => asking || look().catch(() => {}), AGAIN_MS);
}
