// The map: site, bearings, delay ellipses, fix, bound, truth, trail. Metres, y upwards.

import { element, say } from "./dom.js";
import { Tracks } from "./tracks.js";

const LIGHT_M_S = 299792458;
const CHI2_95 = 5.991;
const TRAIL = 100;
const ZOOM = 1.2;
// A step longer than this share of the area is a jump, not a way.
const JUMP = 0.15;

// The part [aa, ab, bb] of a covariance that is an upper triangle over x and y, or over x, y and z.
export function partOf(triangle, a, b) {
  const count = triangle.length === 6 ? 3 : 2;
  const entry = (row, column) => triangle[row * count - (row * (row + 1)) / 2 + column];
  return [entry(a, a), entry(a, b), entry(b, b)];
}

// Half axes and turn of the 95 % ellipse of a covariance [xx, xy, yy].
export function ellipseOf([xx, xy, yy]) {
  const mean = (xx + yy) / 2, half = Math.hypot((xx - yy) / 2, xy);
  const turn = 0.5 * Math.atan2(2 * xy, xx - yy);
  const axis = (value) => Math.sqrt(CHI2_95 * Math.max(value, 0));
  return { rx: axis(mean + half), ry: axis(mean - half), turn: (turn * 180) / Math.PI };
}

export function drawEllipse(parent, id, kind, [x, y], covariance) {
  const { rx, ry, turn } = ellipseOf(covariance);
  return element("ellipse", { id, class: kind, cx: x, cy: y, rx, ry, transform: `rotate(${turn} ${x} ${y})` }, parent);
}

export function drawCross(parent, [x, y], size) {
  const path = `M${x - size} ${y}h${2 * size}M${x} ${y - size}v${2 * size}`;
  element("path", { class: "truth", d: path }, parent);
}

export class SiteMap {
  constructor(svg, closeUp, hover) {
    this.svg = svg;
    this.closeUp = closeUp;
    this.hover = hover;
    this.trail = [];
    this.tracks = new Tracks();
    this.chosen = null;
    this.closeSpan = 1;
    this.listen();
  }

  setSite(site) {
    this.site = site;
    this.fit();
  }

  fit() {
    const points = [this.site.base_station_m, ...this.site.coverage_m, ...this.site.irs.map((irs) => irs.position_m)];
    const range = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [x0, x1] = range(0), [y0, y1] = range(1);
    const span = 1.12 * Math.max(x1 - x0, y1 - y0, 1);
    this.view = { x: (x0 + x1) / 2, y: (y0 + y1) / 2, span };
    this.redraw();
  }

  listen() {
    const pointers = new Map();
    const apart = () => {
      const [a, b] = [...pointers.values()];
      return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    };
    this.svg.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event);
      this.svg.setPointerCapture(event.pointerId);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(name, (event) => pointers.delete(event.pointerId));
    }
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.view) return;
      const before = pointers.get(event.pointerId);
      if (before && pointers.size === 1) {
        this.pan(before.clientX - event.clientX, event.clientY - before.clientY);
      } else if (before && pointers.size === 2) {
        const was = apart();
        pointers.set(event.pointerId, event);
        this.zoom(was / Math.max(apart(), 1));
      }
      if (before) pointers.set(event.pointerId, event);
      this.pointer = event;
      this.showHover();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.showHover();
    });
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, this.place(event));
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => {
      const step = this.svg.clientWidth / 10;
      const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
      if (moves[event.key]) this.pan(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoom(1 / ZOOM);
      else if (event.key === "-") this.zoom(ZOOM);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
  }

  // Metres of a length on the screen.
  metres(pixels) {
    return (pixels / (this.svg.clientWidth || 1)) * this.view.span;
  }

  // The place that a pointer is at.
  place({ clientX, clientY }) {
    const box = this.svg.getBoundingClientRect(), half = this.view.span / 2;
    return [this.view.x - half + this.metres(clientX - box.left), this.view.y + half - this.metres(clientY - box.top)];
  }

  pan(right, up) {
    this.view.x += this.metres(right);
    this.view.y += this.metres(up);
    this.redraw();
  }

  // Zooms, and leaves one place where it is.
  zoom(factor, [x, y] = [this.view.x, this.view.y]) {
    const span = Math.min(Math.max(this.view.span * factor, 0.2), 1e5), share = span / this.view.span;
    this.view = { x: x + (this.view.x - x) * share, y: y + (this.view.y - y) * share, span };
    this.redraw();
  }

  showHover() {
    if (!this.site) return;
    if (!this.pointer) return say(this.hover, this.fix?.position_m ? this.describeFix() : "");
    const [x, y] = this.place(this.pointer);
    say(this.hover, `(${x.toFixed(2)}, ${y.toFixed(2)}) m${this.describe(x, y)}`);
  }

  // What is near a place, in words.
  describe(x, y) {
    const near = (p) => Math.hypot(p[0] - x, p[1] - y) < this.view.span / 40;
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
    const { frame, covariance_m2, protection_level_m, truth } = this.fix, { rx, ry } = ellipseOf(partOf(covariance_m2, 0, 1));
    const centimetres = (value) => `${(100 * value).toFixed(1)} cm`;
    const parts = [`fix of frame ${frame}: 95 % within ${(100 * rx).toFixed(1)} x ${centimetres(ry)}`];
    if (protection_level_m != null) parts.push(`protection level ${centimetres(protection_level_m)}`);
    if (truth?.error_m != null) parts.push(`off by ${centimetres(truth.error_m)}`);
    return parts.join(", ");
  }

  show(fix) {
    this.fix = fix;
    this.tracks.take(fix);
    // The strongest of several targets is another one from frame to frame.
    if (Tracks.has(fix)) this.trail = [];
    else if (fix.position_m) {
      this.trail.push(fix.position_m);
      if (this.trail.length > TRAIL) this.trail.shift();
    }
    this.redraw();
    this.showHover();
  }

  choose(node) {
    this.chosen = node;
    this.redraw();
  }

  redraw() {
    if (!this.site) return;
    const { x, y, span } = this.view;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `${x - span / 2} ${-y - span / 2} ${span} ${span}`);
    const up = element("g", { transform: "scale(1 -1)" }, this.svg);
    this.drawSite(up, span);
    if (this.fix) {
      this.drawPaths(up);
      this.drawTrail(up, span);
      if (Tracks.has(this.fix)) this.tracks.draw(up, this.fix, span);
      else this.drawFix(up, "", span / 80);
    }
    this.drawLabels(span);
    this.drawCloseUp();
  }

  drawSite(up, span) {
    const [[x0, y0], [x1, y1]] = this.site.coverage_m;
    element("rect", { class: "area", x: x0, y: y0, width: x1 - x0, height: y1 - y0 }, up);
    const [bx, by] = this.site.base_station_m, size = span / 60;
    element("rect", { class: "station", x: bx - size / 2, y: by - size / 2, width: size, height: size }, up);
    this.site.irs.forEach((irs, k) => {
      // As far as the far corner of the area: whether a target lies in the sector can be seen.
      const [px, py] = irs.position_m, reach = Math.max(Math.hypot(px - x0, py - y0), Math.hypot(px - x1, py - y1));
      const at = (angle) => `${px + reach * Math.cos(angle)} ${py + reach * Math.sin(angle)}`;
      const from = irs.broadside_rad - irs.half_sector_rad, to = irs.broadside_rad + irs.half_sector_rad;
      element("path", { class: "sector", opacity: 0.07 * Math.sqrt(3 / Math.max(this.site.irs.length, 3)), d: `M${px} ${py}L${at(from)}A${reach} ${reach} 0 0 1 ${at(to)}Z` }, up);
      const gone = this.fix && !this.fix.nodes.includes(k);
      element("circle", { class: gone ? "irs missing" : "irs", cx: px, cy: py, r: size / 2 }, up);
      const nose = 1.6 * size, b = irs.broadside_rad;
      element("path", { class: "ray", d: `M${px} ${py}l${nose * Math.cos(b)} ${nose * Math.sin(b)}` }, up);
    });
  }

  drawPaths(up) {
    const { irs } = this.site, fix = this.fix;
    const shown = (l, k) => (this.chosen == null ? l === k : l === this.chosen || k === this.chosen);
    irs.forEach(({ position_m: [px, py] }, k) => {
      const bearing = fix.bearing_rad[k];
      if (bearing == null || (this.chosen != null && k !== this.chosen)) return;
      const reach = 2 * this.view.span;
      element("path", { class: "ray", d: `M${px} ${py}l${reach * Math.cos(bearing)} ${reach * Math.sin(bearing)}` }, up);
    });
    // In space the places of one delay are an ellipsoid, which no ellipse of the map shows.
    if ([...this.site.coverage_m, ...irs.map((one) => one.position_m)].some((p) => p[2])) return;
    for (let l = 0; l < irs.length; l++) {
      for (let k = 0; k <= l; k++) {
        const delay = fix.delay_s[l][k] ?? fix.delay_s[k][l];
        if (delay == null || !shown(l, k)) continue;
        const [ax, ay] = irs[l].position_m, [bx, by] = irs[k].position_m;
        const sum = LIGHT_M_S * delay, apart = Math.hypot(ax - bx, ay - by);
        if (sum <= apart) continue;
        const cx = (ax + bx) / 2, cy = (ay + by) / 2, turn = (Math.atan2(by - ay, bx - ax) * 180) / Math.PI;
        const rx = sum / 2, ry = Math.sqrt(sum * sum - apart * apart) / 2;
        element("ellipse", { class: "delay", cx, cy, rx, ry, transform: `rotate(${turn} ${cx} ${cy})` }, up);
      }
    }
  }

  // Where it was, fading: a line where it moved, dots where it jumped.
  drawTrail(up, span) {
    const [[x0, y0], [x1, y1]] = this.site.coverage_m, far = JUMP * Math.hypot(x1 - x0, y1 - y0);
    for (let i = 1; i < this.trail.length; i++) {
      const [a, b] = [this.trail[i - 1], this.trail[i]], opacity = (0.6 * i) / this.trail.length;
      if (Math.hypot(a[0] - b[0], a[1] - b[1]) > far) {
        element("circle", { class: "dot", cx: a[0], cy: a[1], r: span / 250, "fill-opacity": opacity }, up);
      } else {
        element("path", { class: "trail", d: `M${a[0]} ${a[1]}L${b[0]} ${b[1]}`, "stroke-opacity": opacity }, up);
      }
    }
  }

  drawFix(up, suffix, size) {
    const { position_m, covariance_m2, truth } = this.fix;
    if (truth?.bound_m2) drawEllipse(up, `bound${suffix}`, "bound", truth.position_m, partOf(truth.bound_m2, 0, 1));
    if (truth?.position_m) drawCross(up, truth.position_m, size);
    if (!position_m) return;
    drawEllipse(up, `fix${suffix}`, "fix", position_m, partOf(covariance_m2, 0, 1));
    element("circle", { class: "fix", cx: position_m[0], cy: position_m[1], r: size / 4 }, up);
  }

  drawLabels(span) {
    const scale = span / this.svg.clientWidth || 1;
    // Away from the edge that it would be cut off at.
    const sideOf = ([x]) => (x > this.view.x + 0.3 * span ? -1 : 1);
    const label = ([x, y], text, side = sideOf([x, y])) => {
      const place = `translate(${x + side * 8 * scale} ${-y - 6 * scale}) scale(${scale})`;
      element("text", { transform: place, class: side < 0 ? "end" : "" }, this.svg).textContent = text;
    };
    this.site.irs.forEach((irs, k) => label(irs.position_m, `IRS ${k}`));
    if (this.fix) this.tracks.label(this.fix, label);
    // Away from the area, where the target is.
    const { base_station_m: station, coverage_m: [[x0], [x1]] } = this.site;
    label(station, "BS", station[0] < (x0 + x1) / 2 ? -1 : 1);
  }

  drawCloseUp() {
    const svg = this.closeUp;
    svg.replaceChildren();
    if (!this.fix?.position_m) return;
    const centre = this.fix.truth?.position_m ?? this.fix.position_m;
    const error = Math.hypot(this.fix.position_m[0] - centre[0], this.fix.position_m[1] - centre[1]);
    const needed = 2.6 * Math.max(ellipseOf(partOf(this.fix.covariance_m2, 0, 1)).rx, error);
    // A scale that stays unless it must change, so that sizes can be compared by eye.
    if (needed > this.closeSpan || needed < this.closeSpan / 6) this.closeSpan = 1.5 * needed;
    const span = this.closeSpan, [x, y] = centre;
    svg.setAttribute("viewBox", `${x - span / 2} ${-y - span / 2} ${span} ${span}`);
    const up = element("g", { transform: "scale(1 -1)" }, svg);
    this.drawTrail(up, span);
    this.drawFix(up, "-close", span / 30);
    const unit = 10 ** Math.floor(Math.log10(span / 2)), scale = span / svg.clientWidth || 1;
    const left = x - span / 2 + 8 * scale, low = -y + span / 2 - 8 * scale;
    element("path", { class: "truth", d: `M${left} ${low}h${unit}` }, svg);
    const text = unit >= 1 ? `${unit} m` : unit >= 0.0099 ? `${Math.round(100 * unit)} cm` : `${1000 * unit} mm`;
    element("text", { transform: `translate(${left} ${low - 5 * scale}) scale(${scale})` }, svg).textContent = text;
  }
}
