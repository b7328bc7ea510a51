// The map: site, bearings, delay ellipses, likelihood, fix, bound, truth and the way so far.

import { byId, element, inWords, label, press, roundStep, say } from "./dom.js";
import { drawCross, drawEllipse, ellipseOf, partOf } from "./ellipse.js";
import { Surface } from "./surface.js";
import { Tracks } from "./tracks.js";
import { View } from "./view.js";

const LIGHT_M_S = 299792458;
// How long the way behind a target is.
const TRAIL_S = 10;
// A step longer than this share of the area is a jump, not a way.
const JUMP = 0.15;
const ARROW_PX = 26;

// A round length in words.
const roundLength = (metres) => inWords(metres).replace(/\.0+ /, " ");

export class SiteMap {
  constructor(svg, closeUp, hover) {
    Object.assign(this, { svg, closeUp, hover, trail: [], chosen: null, pointed: null, closeSpan: 0, pointer: null });
    this.tracks = new Tracks();
    this.view = new View(svg, () => this.redraw());
    this.view.show = (mode) => this.look(mode);
    this.view.targets = () => this.targets();
    this.surface = new Surface(byId("surface"), this.view);
    svg.addEventListener("pointermove", (event) => {
      this.pointer = event;
      this.showHover();
    });
    svg.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.showHover();
    });
    new ResizeObserver(() => this.site && (this.view.mode === "free" || this.view.zoomed ? this.redraw() : this.look(this.view.mode))).observe(svg);
  }

  setSite(site) {
    this.site = site;
    const points = [...site.coverage_m, ...site.irs.map((irs) => irs.position_m)];
    this.flat = !points.some((place) => place[2]);
    this.look("targets");
  }

  // One of the two views: the targets with the area that they are looked for in, or the whole site.
  look(mode) {
    if (!this.site) return;
    const { base_station_m, coverage_m, irs } = this.site;
    const all = [base_station_m, ...coverage_m, ...irs.map((one) => one.position_m)];
    this.view.fit(mode === "site" ? all : [...coverage_m, ...this.targets()], mode);
  }

  // Where the targets are.
  targets() {
    const { fix } = this;
    if (!fix) return [];
    const tracks = (fix.tracks ?? []).map((track) => track.position_m);
    return tracks.length ? tracks : fix.position_m ? [fix.position_m] : [];
  }

  // The way of fixes that came before the page was opened.
  seed(past) {
    for (const fix of past) {
      this.tracks.take(fix);
      if (!(fix.tracks?.length > 1)) this.extend(fix, fix.time_ns);
    }
  }

  extend({ position_m }, time_ns) {
    if (position_m) this.trail.push({ at: position_m, time_ns });
    this.trail = this.trail.filter((part) => time_ns - part.time_ns < 1e9 * TRAIL_S);
  }

  show(fix) {
    this.fix = fix;
    this.tracks.take(fix);
    // The strongest of several targets is another one from frame to frame.
    if (Tracks.several(fix)) this.trail = [];
    else this.extend(fix, fix.timing.time_ns);
    this.view.follow(this.targets(), this.site?.coverage_m ?? []);
    this.redraw();
    this.showHover();
  }

  choose(node) {
    this.chosen = node;
    this.redraw();
  }

  // The path (l, k) whose delay stands out.
  point(path) {
    this.pointed = path;
    this.redraw();
  }

  showHover() {
    if (!this.site) return;
    if (!this.pointer) return say(this.hover, this.fix?.position_m ? this.describeFix() : "");
    const [x, y] = this.view.place(this.pointer);
    say(this.hover, `(${x.toFixed(2)}, ${y.toFixed(2)}) m${this.describe(x, y)}`);
  }

  // What is near a place, in words.
  describe(x, y) {
    const near = (p) => Math.hypot(p[0] - x, p[1] - y) * this.view.scale < 16;
    const k = this.site.irs.findIndex((irs) => near(irs.position_m));
    if (k >= 0) {
      const bearing = this.fix?.bearing_rad[k];
      return ` · IRS ${k}` + (bearing == null ? "" : `, bearing ${((bearing * 180) / Math.PI).toFixed(2)}°`);
    }
    if (near(this.site.base_station_m)) return " · base station";
    if (this.fix?.position_m && near(this.fix.position_m)) return ` · ${this.describeFix()}`;
    return "";
  }

  describeFix() {
    const { covariance_m2, protection_level_m, truth } = this.fix, { rx, ry } = ellipseOf(partOf(covariance_m2, 0, 1));
    const parts = [`95 % within ${inWords(rx)} × ${inWords(ry)}`];
    if (protection_level_m != null) parts.push(`protection level ${inWords(protection_level_m)}`);
    if (truth?.error_m != null) parts.push(`off by ${inWords(truth.error_m)}`);
    return parts.join(", ");
  }

  redraw() {
    if (!this.site) return;
    const { svg, view, fix } = this, [width, height] = view.size;
    for (const mode of ["targets", "site"]) press(byId(`view-${mode}`), view.mode === mode);
    this.surface.draw();
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawGrid(width, height);
    const up = element("g", { transform: view.transform() }, svg);
    this.drawSite(up);
    if (fix) {
      this.drawPaths(up);
      this.drawTrail(up);
      if (Tracks.several(fix)) this.tracks.draw(up, fix, 1 / view.scale);
      else this.drawFix(up, "", 9 / view.scale);
    }
    this.makeRoom();
    this.drawStations();
    if (fix) this.tracks.label(svg, fix, view);
    this.drawScale(height);
    this.drawCloseUp();
  }

  // Lines and numbers of both axes.
  drawGrid(width, height) {
    const { svg, view } = this, step = roundStep(width / view.scale, width / 90);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const lines = (from, to) => Array.from({ length: Math.max(0, Math.floor(to / step) - Math.ceil(from / step) + 1) }, (_, i) => (Math.ceil(from / step) + i) * step);
    for (const x of lines(view.x - width / 2 / view.scale, view.x + width / 2 / view.scale)) {
      const [px] = view.at([x, 0]);
      element("path", { class: "grid fine", d: `M${px} 0V${height}` }, svg);
      if (px > 40 && px < width - 62) label(svg, px, height - 6, x.toFixed(digits), "axis mid");
    }
    for (const y of lines(view.y - height / 2 / view.scale, view.y + height / 2 / view.scale)) {
      const [, py] = view.at([0, y]);
      element("path", { class: "grid fine", d: `M0 ${py}H${width}` }, svg);
      if (py > 30 && py < height - 20) label(svg, 6, py + 4, y.toFixed(digits), "axis");
    }
    label(svg, width - 6, height - 6, "x in m", "axis end");
    label(svg, 6, 16, "y in m", "axis");
  }

  drawSite(up) {
    const [[x0, y0], [x1, y1]] = this.site.coverage_m;
    element("rect", { class: "area", x: x0, y: y0, width: x1 - x0, height: y1 - y0 }, up);
    // Near the targets they would cover everything.
    if (this.view.mode === "targets") return;
    const opacity = 0.05 * Math.sqrt(3 / Math.max(this.site.irs.length, 3));
    for (const irs of this.site.irs) {
      // As far as the far corner of the area: whether a target lies in the sector can be seen.
      const [px, py] = irs.position_m, reach = Math.max(Math.hypot(px - x0, py - y0), Math.hypot(px - x1, py - y1));
      const at = (angle) => `${px + reach * Math.cos(angle)} ${py + reach * Math.sin(angle)}`;
      const from = irs.broadside_rad - irs.half_sector_rad, to = irs.broadside_rad + irs.half_sector_rad;
      element("path", { class: "sector", opacity, d: `M${px} ${py}L${at(from)}A${reach} ${reach} 0 0 1 ${at(to)}Z` }, up);
    }
  }

  // Stations in view as marks, others as arrows at the edge with their distance.
  drawStations() {
    const { svg, view, site } = this, [[x0, y0], [x1, y1]] = site.coverage_m, middle = [(x0 + x1) / 2, (y0 + y1) / 2], arrows = [];
    const station = (place, name, kind, draw) => {
      const [x, y] = view.at(place), group = element("g", { class: kind, "data-station": name }, svg);
      if (view.shows(place, 12)) {
        draw(group, x, y);
        const left = x > view.size[0] - 80;
        label(group, left ? x - 10 : x + 10, y - 9, name, `label ${kind} ${left ? "end" : ""}`);
        return;
      }
      const [width, height] = view.size, dx = x - width / 2, dy = y - height / 2;
      const share = Math.min((width / 2 - ARROW_PX) / Math.abs(dx || 1e-9), (height / 2 - ARROW_PX) / Math.abs(dy || 1e-9));
      let [ax, ay] = this.besideCloseUp(width / 2 + share * dx, height / 2 + share * dy);
      // One beside another, towards the middle of the edge.
      const onSide = ax < ARROW_PX + 1 || ax > width - ARROW_PX - 1;
      const [right, down] = onSide ? [0, ay > height / 2 ? -26 : 26] : [ax > width / 2 ? -70 : 70, 0];
      while (arrows.some(([x, y]) => Math.hypot(ax - x, ay - y) < 24)) [ax, ay] = [ax + right, ay + down];
      arrows.push([ax, ay]);
      const turn = (Math.atan2(dy, dx) * 180) / Math.PI;
      group.dataset.arrow = "";
      element("path", { class: kind, d: "M14 0L-8 9L-3 0L-8 -9Z", transform: `translate(${ax} ${ay}) rotate(${turn})` }, group);
      const away = Math.hypot(place[0] - middle[0], place[1] - middle[1]), side = ax > width / 2 ? -1 : 1;
      const low = ay > height - 40 ? -18 : ay < 40 ? 26 : 5, text = site.irs.length > 8 ? name : `${name} · ${away.toFixed(0)} m`;
      label(group, ax + side * (low === 5 ? 20 : 0), ay + low, text, `label ${kind} ${low === 5 ? (side < 0 ? "end" : "") : "mid"}`);
    };
    station(site.base_station_m, "BS", "station", (group, x, y) => element("rect", { class: "station", x: x - 6, y: y - 6, width: 12, height: 12 }, group));
    site.irs.forEach((irs, k) => {
      const gone = this.fix && !this.fix.nodes.includes(k);
      station(irs.position_m, gone ? `IRS ${k} gone` : `IRS ${k}`, gone ? "irs missing" : "irs", (group, x, y) => {
        element("circle", { cx: x, cy: y, r: 7 }, group);
        const b = irs.broadside_rad;
        element("path", { class: "ray", d: `M${x} ${y}l${20 * Math.cos(b)} ${-20 * Math.sin(b)}` }, group);
      });
    });
  }

  // The part of the map that the close-up covers.
  covered(edge) {
    const { offsetLeft, offsetTop } = this.corner(), size = this.closeUp.clientWidth;
    return (x, y) => size > 0 && x > offsetLeft - edge && x < offsetLeft + size + edge && y > offsetTop - edge && y < offsetTop + size + edge;
  }

  corner() {
    const inset = this.closeUp.getBoundingClientRect(), box = this.svg.getBoundingClientRect();
    return { offsetLeft: inset.left - box.left, offsetTop: inset.top - box.top };
  }

  // An arrow that the close-up would hide moves along the edge.
  besideCloseUp(x, y) {
    const edge = 34;
    if (!this.covered(edge - 10)(x, y)) return [x, y];
    const { offsetLeft, offsetTop } = this.corner(), size = this.closeUp.clientWidth, [width, height] = this.view.size;
    const onSide = x < ARROW_PX + 1 || x > width - ARROW_PX - 1;
    if (onSide) return [x, offsetTop > height / 2 - size / 2 ? offsetTop - edge : offsetTop + size + edge];
    return [offsetLeft > width / 2 - size / 2 ? offsetLeft - edge : offsetLeft + size + edge, y];
  }

  // The close-up goes to a corner where no target is.
  makeRoom() {
    const corners = ["br", "tr", "tl", "bl"], svg = this.closeUp, busy = () => this.targets().some((place) => this.covered(14)(...this.view.at(place)));
    const before = svg.dataset.corner ?? "br";
    if (!busy()) return;
    if (!corners.some((corner) => ((svg.dataset.corner = corner), !busy()))) svg.dataset.corner = before;
  }

  drawPaths(up) {
    const { irs } = this.site, { fix, pointed } = this, few = irs.length <= 8;
    const shown = (l, k) => (this.chosen == null ? few && l === k : l === this.chosen || k === this.chosen);
    irs.forEach(({ position_m: [px, py] }, k) => {
      const bearing = fix.bearing_rad[k];
      if (bearing == null || (this.chosen != null ? k !== this.chosen : !few)) return;
      const reach = 4 * Math.hypot(px - this.view.x, py - this.view.y) + 10;
      element("path", { class: "ray", d: `M${px} ${py}l${reach * Math.cos(bearing)} ${reach * Math.sin(bearing)}` }, up);
    });
    // In space the places of one delay are an ellipsoid, which no ellipse of the map shows.
    if (!this.flat) return;
    for (let l = 0; l < irs.length; l++) {
      for (let k = 0; k <= l; k++) {
        const marked = pointed && ((pointed[0] === l && pointed[1] === k) || (pointed[0] === k && pointed[1] === l));
        const delay = marked ? (fix.delay_s[pointed[0]][pointed[1]] ?? fix.delay_s[l][k]) : (fix.delay_s[l][k] ?? fix.delay_s[k][l]);
        if (delay == null || !(marked || shown(l, k))) continue;
        const [ax, ay] = irs[l].position_m, [bx, by] = irs[k].position_m;
        const sum = LIGHT_M_S * delay, apart = Math.hypot(ax - bx, ay - by);
        if (sum <= apart) continue;
        const cx = (ax + bx) / 2, cy = (ay + by) / 2, turn = (Math.atan2(by - ay, bx - ax) * 180) / Math.PI;
        const rx = sum / 2, ry = Math.sqrt(sum * sum - apart * apart) / 2;
        const made = element("ellipse", { class: marked ? "delay pointed" : "delay", cx, cy, rx, ry, transform: `rotate(${turn} ${cx} ${cy})` }, up);
        if (marked) made.id = "pointed";
      }
    }
  }

  drawTrail(up) {
    if (this.trail.length < 2) return;
    const [[x0, y0], [x1, y1]] = this.site.coverage_m, most = JUMP * Math.max(x1 - x0, y1 - y0), count = this.trail.length;
    // In parts that fade with age.
    for (let part = 0; part < 6; part++) {
      const from = Math.floor((part * count) / 6), points = this.trail.slice(Math.max(from - 1, 0), Math.floor(((part + 1) * count) / 6)).map(({ at }) => at);
      const step = (p, i) => `${i && Math.hypot(p[0] - points[i - 1][0], p[1] - points[i - 1][1]) < most ? "L" : "M"}${p[0]} ${p[1]}`;
      element("path", { class: "trail", opacity: 0.12 + 0.13 * part, d: points.map(step).join("") }, up);
    }
  }

  drawFix(up, suffix, size) {
    const { position_m, covariance_m2, truth, alternatives } = this.fix;
    for (const { position_m: [x, y] } of alternatives ?? []) element("circle", { class: "alternative", cx: x, cy: y, r: 1.5 * size }, up);
    if (truth?.bound_m2) drawEllipse(up, `bound${suffix}`, "bound", truth.position_m, partOf(truth.bound_m2, 0, 1));
    if (truth?.position_m) drawCross(up, truth.position_m, size);
    if (!position_m) return;
    drawEllipse(up, `fix${suffix}`, "fix", position_m, partOf(covariance_m2, 0, 1));
    element("circle", { class: "dot", cx: position_m[0], cy: position_m[1], r: size / 2.5 }, up);
  }

  drawScale(height) {
    const { svg, view } = this, unit = roundStep(160 / view.scale, 1.2), x = 46, y = height - 30;
    element("path", { class: "bar", d: `M${x} ${y - 5}v5h${unit * view.scale}v-5` }, svg);
    label(svg, x + (unit * view.scale) / 2, y - 8, roundLength(unit), "label mid");
  }

  // The surroundings of the first target, so large that fix, bound and truth can be told apart.
  drawCloseUp() {
    const svg = this.closeUp, { fix } = this;
    svg.toggleAttribute("hidden", !fix?.position_m);
    svg.replaceChildren();
    if (!fix?.position_m) return;
    const centre = fix.truth?.position_m ?? fix.position_m;
    const error = Math.hypot(fix.position_m[0] - centre[0], fix.position_m[1] - centre[1]);
    const needed = 2.3 * (ellipseOf(partOf(fix.covariance_m2, 0, 1)).rx + error);
    // A scale that stays unless it must change, so that sizes can be compared by eye.
    if (needed > this.closeSpan || needed < this.closeSpan / 3) this.closeSpan = 1.4 * needed;
    const width = svg.clientWidth || 200, scale = width / this.closeSpan, [x, y] = centre;
    svg.setAttribute("viewBox", `0 0 ${width} ${width}`);
    const up = element("g", { transform: `matrix(${scale} 0 0 ${-scale} ${width / 2 - x * scale} ${width / 2 + y * scale})` }, svg);
    this.drawTrail(up);
    this.drawFix(up, "-close", 10 / scale);
    const unit = roundStep(this.closeSpan / 2, 1.2);
    element("path", { class: "bar", d: `M10 ${width - 15}v5h${unit * scale}v-5` }, svg);
    label(svg, 10, width - 20, roundLength(unit), "value");
  }
}
