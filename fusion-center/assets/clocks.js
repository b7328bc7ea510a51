// The panel of the clocks, where these are not trusted: what is known about every node's clock, and its offset over time.

import { drawOffsets } from "./charts.js";
import { byId, fixed, keep, make, nodeHue, say, tint } from "./dom.js";

function row() {
  const made = make("tr"), node = make("th");
  node.scope = "row";
  node.append(make("span", null, "key own-key"), make("span"));
  made.append(node, ...Array.from({ length: 4 }, () => make("td")));
  return made;
}

// Steps that the plot still shows, and clocks at the edge.
function notes(clocks, first, latest) {
  return clocks.flatMap(({ index, clock }) => [
    clock.stepped_frame >= first && `the clock of node ${index} has stepped in frame ${clock.stepped_frame}`,
    latest?.clocks?.[index]?.at_edge && `the clock of node ${index} is at the edge of the searched offsets`,
  ].filter(Boolean));
}

// Node status, the latest fix and the fixes of a span. A chosen node stands out.
export function showClocks({ nodes }, latest, span, chosen) {
  const clocks = nodes.filter(({ clock }) => clock), told = latest?.truth?.clock_offset_ns ?? [];
  byId("clocks-card").hidden = !clocks.length;
  if (!clocks.length) return;
  keep(byId("clocks"), clocks, row, (made, { index, clock }) => {
    made.dataset.clock = index;
    made.className = chosen === index ? "chosen" : "";
    tint(made, nodeHue(index, nodes.length));
    say(made.children[0].children[1], index);
    const error = told.length && latest.clocks ? latest.clocks[index].offset_ns - told[index] : null;
    const values = [fixed(clock.offset_ns, 2), fixed(clock.deviation_ns, 2), fixed(clock.rate_ppb, 1), fixed(error, 2)];
    values.forEach((value, i) => say(made.children[i + 1], value));
  });
  const own = span.fixes.filter(({ run }) => run === latest?.run);
  say(byId("clock-notes"), notes(clocks, own[0]?.frame ?? Infinity, latest).join("; "));
  drawOffsets(byId("offsets"), span, nodes.map(({ index, clock }) => ({
    hue: nodeHue(index, nodes.length), back: chosen != null && chosen !== index,
    // A step before the first fix that is shown is not in the picture.
    step: own.find(({ frame }, i) => i > 0 && frame >= clock?.stepped_frame)?.t,
  })));
}
