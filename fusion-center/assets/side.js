// The side view, x against z, of a site whose coverage area has a height.

import { element, label, roundStep } from "./dom.js";
import { drawCross, drawEllipse, partOf } from "./ellipse.js";

const SIDE = ([x, , z = 0]) => [x, z];
const EDGE_PX = 26;

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
    const { svg } = this, points = [...this.site.coverage_m, ...this.site.irs.map((irs) => irs.position_m)].map(SIDE);
    const range = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [x0, x1] = range(0), [z0, z1] = range(1), width = svg.clientWidth || 600, height = svg.clientHeight || 140;
    const scale = Math.min((width - 2 * EDGE_PX) / Math.max(x1 - x0, 1e-3), (height - 2 * EDGE_PX) / Math.max(z1 - z0, 1e-3));
    const left = width / 2 - ((x0 + x1) / 2) * scale, base = height / 2 + ((z0 + z1) / 2) * scale;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const step = roundStep(z1 - z0 || 1, 4);
    for (let z = Math.ceil(z0 / step) * step; z <= z1 + 1e-9; z += step) {
      element("path", { class: "grid fine", d: `M0 ${base - z * scale}H${width}` }, svg);
      label(svg, 6, base - z * scale + 4, `${Number(z.toFixed(2))}`, "axis");
    }
    label(svg, 6, 14, "height in m", "axis");
    const up = element("g", { transform: `matrix(${scale} 0 0 ${-scale} ${left} ${base})` }, svg), size = 8 / scale;
    const [[ax, az], [bx, bz]] = this.site.coverage_m.map(SIDE);
    element("rect", { class: "area", x: ax, y: az, width: bx - ax, height: bz - az }, up);
    this.site.irs.forEach((irs, k) => {
      const [x, z] = SIDE(irs.position_m), nose = 2 * size, level = Math.cos(irs.elevation_rad);
      element("circle", { class: "irs", cx: x, cy: z, r: 0.7 * size }, up);
      const d = `M${x} ${z}l${nose * level * Math.cos(irs.broadside_rad)} ${nose * Math.sin(irs.elevation_rad)}`;
      element("path", { class: "ray", d }, up);
      label(svg, left + x * scale + 8, base - z * scale - 6, `IRS ${k}`, "axis");
    });
    for (const track of fix?.tracks ?? []) {
      const [x, z] = SIDE(track.position_m);
      element("circle", { class: "dot", cx: x, cy: z, r: size / 2 }, up);
    }
    if (fix?.truth?.position_m) drawCross(up, SIDE(fix.truth.position_m), size);
    if (!fix?.position_m) return;
    const [x, z] = SIDE(fix.position_m);
    drawEllipse(up, "fix-side", "fix", [x, z], partOf(fix.covariance_m2, 0, 2));
    element("circle", { class: "dot", cx: x, cy: z, r: size / 3 }, up);
  }
}
