// The panel of the clocks, where these are not trusted: what is known about every node's clock, and its offset over time.

import { drawOffsets } from "./charts.js";
import { byId, fixed, keep, make, say } from "./dom.js";

// Hues as different as the number of nodes allows.
const hue = (node, count) => Math.round((360 * node) / count + 210) % 360;

// The true offsets of a fix; empty unless a simulator has told them.
const truths = (fix) => fix?.truth?.clock_offset_ns ?? [];

function row() {
  const made = make("tr"), node = make("th");
  node.scope = "row";
  node.append(make("span", null, "key clock-key"), make("span"));
  made.append(node, ...Array.from({ length: 4 }, () => make("td")));
  return made;
}

// Steps that the plot still shows, and clocks at the edge.
function notes(clocks, fixes) {
  const latest = fixes.at(-1), first = fixes.find(({ run }) => run === latest.run)?.frame ?? Infinity;
  return clocks.flatMap(({ index, clock }) => [
    clock.stepped_frame >= first && `the clock of node ${index} has stepped in frame ${clock.stepped_frame}`,
    latest?.clocks?.[index]?.at_edge && `the clock of node ${index} is at the edge of the searched offsets`,
  ].filter(Boolean));
}

// Node status and the latest fixes, oldest first.
export function showClocks({ nodes }, fixes, chosen) {
  const clocks = nodes.filter(({ clock }) => clock), latest = fixes.at(-1), told = truths(latest);
  byId("clocks-card").hidden = !clocks.length;
  keep(byId("clocks"), clocks, row, (made, { index, clock }) => {
    made.dataset.clock = index;
    made.className = chosen === index ? "chosen" : "";
    made.style.setProperty("--hue", hue(index, nodes.length));
    say(made.children[0].children[1], index);
    const error = told.length && latest.clocks ? latest.clocks[index].offset_ns - told[index] : null;
    const values = [fixed(clock.offset_ns, 2), fixed(clock.deviation_ns, 2), fixed(clock.rate_ppb, 1), fixed(error, 2)];
    values.forEach((value, i) => say(made.children[i + 1], value));
  });
  byId("clock-truth").hidden = !told.length;
  say(byId("clock-notes"), notes(clocks, fixes).join("; "));
}

// The offsets of the latest fixes, and where clocks have stepped. A chosen node stands out.
export function showOffsets(nodes, fixes, chosen) {
  if (byId("clocks-card").hidden) return;
  const rows = fixes.map((fix) => ({ offsets: fix.clocks?.map(({ offset_ns }) => offset_ns) ?? [], truths: truths(fix) }));
  const run = fixes.at(-1)?.run;
  drawOffsets(byId("offsets"), rows, nodes.map(({ index, clock }) => {
    const at = fixes.findIndex((fix) => fix.run === run && fix.frame >= clock?.stepped_frame);
    // A step before the first fix that is shown is not in the picture.
    return { hue: hue(index, nodes.length), step: at > 0 ? at : null, back: chosen != null && chosen !== index };
  }));
}
