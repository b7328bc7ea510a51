// The likelihood behind the map, asked for as long as somebody looks at it.

import { byId, press } from "./dom.js";

const AGAIN_MS = 600;

export class Surface {
  constructor(canvas, view) {
    Object.assign(this, { canvas, view, grid: null, timer: null });
    byId("likelihood").addEventListener("click", () => this.toggle());
  }

  toggle() {
    const shown = this.timer == null;
    press(byId("likelihood"), shown);
    clearInterval(this.timer);
    this.timer = shown ? setInterval(() => this.ask(), AGAIN_MS) : null;
    if (shown) this.ask();
    this.take(null);
  }

  async ask() {
    const answer = await fetch("/api/likelihood").catch(() => null);
    if (answer?.ok && this.timer != null) this.take(await answer.json());
  }

  take(grid) {
    this.grid = grid;
    this.picture = null;
    if (grid) this.canvas.dataset.frame = grid.frame;
    else delete this.canvas.dataset.frame;
    this.draw();
  }

  // One pixel for each point of the grid: the share of the highest log-likelihood ratio.
  paint({ columns, rows, values }) {
    const picture = new OffscreenCanvas(columns, rows), context = picture.getContext("2d");
    const pixels = context.createImageData(columns, rows), peak = Math.max(...values, 1e-9);
    const [red, green, blue] = this.colour();
    values.forEach((value, i) => {
      const row = rows - 1 - Math.floor(i / columns), at = 4 * (row * columns + (i % columns));
      pixels.data.set([red, green, blue, 215 * Math.max(0, value / peak) ** 1.4], at);
    });
    context.putImageData(pixels, 0, 0);
    return picture;
  }

  colour() {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(this.canvas).color;
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  }

  draw() {
    const { canvas, grid, view } = this, [width, height] = view.size;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    if (!grid) return;
    this.picture ??= this.paint(grid);
    const { min_m: [x, y], step_m: [dx, dy], columns, rows } = grid;
    const [left, top] = view.at([x - dx / 2, y + (rows - 0.5) * dy]);
    context.imageSmoothingQuality = "high";
    context.drawImage(this.picture, left, top, columns * dx * view.scale, rows * dy * view.scale);
  }
}
