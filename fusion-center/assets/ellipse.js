// Covariances as ellipses, and crosses, in metres.

import { element } from "./dom.js";

const CHI2_95 = 5.991;

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
  const attributes = { class: kind, cx: x, cy: y, rx, ry, transform: `rotate(${turn} ${x} ${y})` };
  return element("ellipse", id ? { id, ...attributes } : attributes, parent);
}

export function drawCross(parent, [x, y], size) {
  element("path", { class: "truth", d: `M${x - size} ${y}h${2 * size}M${x} ${y - size}v${2 * size}` }, parent);
}
