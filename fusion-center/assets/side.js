// The side view, x against z, of a site whose coverage area has a height.

import { drawCross, drawEllipse, partOf } from "./map.js";
import { element } from "./dom.js";

const SIDE = ([x, , z = 0]) => [x, z];

export class SideView {
  constructor(svg) {
    this.svg = svg;
  }

  setSite(site) {
    this.site = site;
    const [low, high] = site.coverage_m;
    this.flat = (low[2] ?? 0) === (high[2] ?? 0);
    this.svg.toggleAttribute("hidden", this.flat);
    this.show(null);
  }

  show(fix) {
    if (!this.site || this.flat) return;
    const points = [...this.site.coverage_m, ...this.site.irs.map((irs) => irs.position_m)].map(SIDE);
    const range = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [x0, x1] = range(0), [z0, z1] = range(1), edge = 0.08 * Math.max(x1 - x0, z1 - z0);
    const width = x1 - x0 + 2 * edge, height = z1 - z0 + 2 * edge;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `${x0 - edge} ${-z1 - edge} ${width} ${height}`);
    const up = element("g", { transform: "scale(1 -1)" }, this.svg), size = width / 60;
    const [[ax, az], [bx, bz]] = this.site.coverage_m.map(SIDE);
    element("rect", { class: "area", x: ax, y: az, width: bx - ax, height: bz - az }, up);
    for (const irs of this.site.irs) {
      const [x, z] = SIDE(irs.position_m), nose = 1.6 * size, level = Math.cos(irs.elevation_rad);
      element("circle", { class: "irs", cx: x, cy: z, r: size / 2 }, up);
      const d = `M${x} ${z}l${nose * level * Math.cos(irs.broadside_rad)} ${nose * Math.sin(irs.elevation_rad)}`;
      element("path", { class: "ray", d }, up);
    }
    if (fix?.truth?.position_m) drawCross(up, SIDE(fix.truth.position_m), size);
    if (!fix?.position_m) return;
    const [x, z] = SIDE(fix.position_m);
    drawEllipse(up, "fix-side", "fix", [x, z], partOf(fix.covariance_m2, 0, 2));
    element("circle", { class: "fix", cx: x, cy: z, r: size / 4 }, up);
  }
}
