// What happened, latest first.

import { byId, clockTime, keep, make, say } from "./dom.js";

const MOST = 200;
let entries = [], asking = false;

function create() {
  const made = make("li");
  made.append(make("time"), make("span"));
  return made;
}

// Asks for what is new if there is any.
export async function showEvents(last) {
  const known = entries[0]?.number ?? 0;
  if (asking || last === known || last == null) return;
  asking = true;
  try {
    // A fusion center that was started again counts from the beginning.
    const fresh = await (await fetch(`/api/events?after=${last < known ? 0 : known}`)).json();
    entries = [...fresh.reverse(), ...(last < known ? [] : entries)].slice(0, MOST);
    keep(byId("events"), entries, create, (made, { time_ns, kind, text }) => {
      made.dataset.kind = kind;
      say(made.children[0], clockTime(time_ns / 1e6));
      say(made.children[1], text);
    });
  } catch {
    // It is asked for again with the next status.
  }
  asking = false;
}
