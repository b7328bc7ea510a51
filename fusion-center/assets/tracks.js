// Several targets: tracks with tails, velocity and 95 % ellipses on the map, and their list.

import { byId, element, fixed, keep, label, make, say, tint } from "./dom.js";
import { drawCross, drawEllipse, partOf } from "./ellipse.js";

const TAIL = 100;
// Seconds of the velocity that an arrow shows.
const AHEAD_S = 1;
const hue = (identity) => (identity * 137 + 200) % 360;

// The covariance of the position: the first rows of an upper triangle over position and velocity.
function positionPart(triangle) {
  const count = triangle.length === 21 ? 6 : 4, axes = count / 2, part = [];
  for (let row = 0, at = 0; row < axes; row++, at += count - row + 1) part.push(...triangle.slice(at, at + axes - row));
  return partOf(part, 0, 1);
}

export class Tracks {
  constructor() {
    this.tails = new Map();
    this.run = null;
  }

  // Keeps the way of every track that the fix still has.
  take(fix) {
    if (fix.run !== this.run) this.tails.clear();
    this.run = fix.run;
    const tracks = fix.tracks ?? [], known = new Set(tracks.map(({ identity }) => identity));
    for (const identity of this.tails.keys()) if (!known.has(identity)) this.tails.delete(identity);
    for (const { identity, position_m } of tracks) {
      const tail = this.tails.get(identity) ?? [];
      this.tails.set(identity, [...tail, position_m].slice(-TAIL));
    }
  }

  // Whether a fix is one of several targets, which tracks show better than the first of them alone.
  static several(fix) {
    return (fix.tracks?.length ?? 0) + (fix.targets?.length ?? 0) > 2 || (fix.truth?.targets?.length ?? 1) !== 1;
  }

  // `px` is a pixel in metres.
  draw(up, fix, px) {
    for (const { position_m } of fix.truth?.targets ?? []) drawCross(up, position_m, 9 * px);
    for (const { position_m: [x, y] } of fix.targets ?? []) element("circle", { class: "dot", cx: x, cy: y, r: 3 * px }, up);
    for (const track of fix.tracks ?? []) {
      const group = element("g", { class: track.coasting ? "track coasting" : "track" }, up);
      tint(group, hue(track.identity));
      group.dataset.track = track.identity;
      const [x, y] = track.position_m, [vx, vy] = track.velocity_m_s;
      const way = (this.tails.get(track.identity) ?? []).map((p) => `${p[0]} ${p[1]}`).join("L");
      if (way.includes("L")) element("path", { class: "tail", d: `M${way}` }, group);
      drawEllipse(group, `track-${track.identity}`, "spread", [x, y], positionPart(track.covariance));
      element("path", { class: "velocity", d: `M${x} ${y}l${AHEAD_S * vx} ${AHEAD_S * vy}` }, group);
      element("circle", { class: "head", cx: x, cy: y, r: 5 * px }, group);
    }
  }

  label(svg, fix, view) {
    for (const { identity, position_m } of Tracks.several(fix) ? (fix.tracks ?? []) : []) {
      const [x, y] = view.at(position_m);
      label(svg, x + 12, y - 10, `${identity}`, "label");
    }
  }
}

function row() {
  const made = make("tr"), name = make("th");
  name.scope = "row";
  name.append(make("span", null, "key own-key"), make("span"));
  made.append(name, ...Array.from({ length: 5 }, () => make("td")));
  return made;
}

// What is ambiguous about a track, in words.
function notes({ coasting, merged_with, doubtful_identity }) {
  const said = [coasting && "coasting", merged_with != null && `merged with ${merged_with}`, doubtful_identity && "identity in doubt"];
  return said.filter(Boolean).join(", ") || "shown";
}

export function showTracks(fix, figures) {
  byId("tracks-card").hidden = !fix.tracks;
  keep(byId("tracks"), fix.tracks ?? [], row, (made, track) => {
    made.dataset.track = track.identity;
    tint(made, hue(track.identity));
    say(made.children[0].children[1], track.identity);
    const speed = Math.hypot(...track.velocity_m_s), place = track.position_m.map((v) => fixed(v, 2)).join(", ");
    const values = [place, fixed(speed, 2), fixed(100 * track.existence, 1), fixed(track.age_s, 1), notes(track)];
    values.forEach((value, i) => say(made.children[i + 1], value));
  });
  const truth = fix.truth?.targets ? ` of ${fix.truth.targets.length} that are there` : "";
  const score = figures ? `; GOSPA ${fixed(figures.gospa_m, 2, " m")}, ${figures.switches} identity switches` : "";
  say(byId("track-notes"), `${fix.targets?.length ?? 0} targets in this frame, ${fix.tracks?.length ?? 0} tracks${truth}${score}`);
}
