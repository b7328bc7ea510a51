// One line that says how good it is: error, exact bound, gap, availability, frames a second. Its colour is the state.

import { byId, fixed, keep, length, make, say } from "./dom.js";

// Fixes that decide about the state: the most frequent status of the last second, of equals the worse.
const RECENT_MS = 1000;
const WORSE = ["nominal", "degraded", "doubtful", "unobservable"];
// Seconds over which frames are counted.
const RATE_S = 5;
const counts = [];

export function stateOf(fixes) {
  const end = fixes.at(-1)?.t, votes = new Map();
  for (const { t, status } of fixes.slice(-20)) if (end - t <= RECENT_MS) votes.set(status, (votes.get(status) ?? 0) + 1);
  const most = Math.max(0, ...votes.values());
  return WORSE.findLast((status) => most && votes.get(status) === most) ?? "none";
}

// Frames with or without a fix per second, by the server's clock.
function rate({ now_ns, fixes, without_fix }) {
  counts.push({ t: now_ns / 1e9, count: fixes + without_fix });
  while (counts.length > 2 && counts.at(-1).t - counts[0].t > RATE_S) counts.shift();
  const [first, last] = [counts[0], counts.at(-1)];
  return last.t - first.t > 0.4 && last.count >= first.count ? (last.count - first.count) / (last.t - first.t) : null;
}

const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, " ");

function items(status, latest) {
  const closed = status.fixes + status.without_fix + status.counts.frames_shed + status.counts.frames_minority;
  const known = status.rms_error_m != null, signed = (value) => (value > 0 ? "+" : "") + fixed(value, 2);
  const own = latest?.covariance_m2 && Math.sqrt(latest.covariance_m2[0] + latest.covariance_m2.at(-1) + (latest.covariance_m2.length === 6 ? latest.covariance_m2[3] : 0));
  const ends = status.gap_db_interval, pace = rate(status);
  return [
    known ? ["error", ...length(status.rms_error_m), `rms of ${grouped(status.judged)} fixes`] : ["expected error", ...length(own), "rms, by the covariance of the fix"],
    ["exact bound", ...length(status.bound_rms_m), known ? "rms, of the same data" : "the truth is not known"],
    ["gap to the bound", status.gap_db == null ? "–" : signed(status.gap_db), status.gap_db == null ? "" : "dB", ends ? `95 %: ${signed(ends[0])} to ${signed(ends[1])} dB` : ""],
    ["availability", closed ? fixed((100 * status.fixes) / closed, closed > 1000 ? 2 : 1) : "–", closed ? "%" : "", `${grouped(status.fixes)} of ${grouped(closed)} frames`],
    ["frames a second", pace == null ? "–" : fixed(pace, pace < 10 ? 1 : 0), "", `nominal ${fixed((100 * status.nominal) / Math.max(status.fixes, 1), 1, " %")}`],
  ];
}

function item() {
  const made = make("div"), value = make("dd", null, "value");
  value.append(make("span"), make("span", null, "unit"));
  made.append(make("dt"), value, make("dd", null, "note"));
  return made;
}

export function showNumbers(status, latest) {
  keep(byId("numbers"), items(status, latest), item, (made, [name, value, unit, note], i) => {
    made.dataset.item = ["error", "bound", "gap", "availability", "rate"][i];
    const [title, number, under] = made.children;
    say(title, name);
    say(number.children[0], value);
    say(number.children[1], unit);
    say(under, note);
  });
}

const WORDS = { none: "no data", unobservable: "no fix" };

// `live` is whether data come: otherwise no state is shown as if it were one of now.
export function showVerdict(fixes, latest, live) {
  const state = live ? stateOf(fixes) : "none", shown = WORDS[state] ? "none" : state;
  if (byId("headline").dataset.state !== shown) byId("headline").dataset.state = shown;
  say(byId("verdict"), WORDS[state] ?? state);
  const why = state !== "nominal" && live ? [...(latest?.cautions ?? []), ...(latest?.excluded ?? []).map((text) => `excluded: ${text}`)] : [];
  say(byId("why"), why.join("; "));
}
