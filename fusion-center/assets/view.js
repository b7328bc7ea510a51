// What a map shows: a place, a scale, and whether it follows the targets. Metres, y upwards; pixels, y downwards.

const ZOOM = 1.25;
const EDGE_PX = 44;

export class View {
  constructor(svg, changed) {
    this.svg = svg;
    this.changed = changed;
    this.mode = "targets";
    this.zoomed = false;
    Object.assign(this, { x: 0, y: 0, scale: 1 });
    this.listen();
  }

  get size() {
    return [this.svg.clientWidth || 1, this.svg.clientHeight || 1];
  }

  // Pixels of a place.
  at([x, y]) {
    const [width, height] = this.size;
    return [width / 2 + (x - this.x) * this.scale, height / 2 - (y - this.y) * this.scale];
  }

  // The place that a pointer is at.
  place({ clientX, clientY }) {
    const box = this.svg.getBoundingClientRect(), [width, height] = this.size;
    return [this.x + (clientX - box.left - width / 2) / this.scale, this.y - (clientY - box.top - height / 2) / this.scale];
  }

  // Everything that is drawn in metres goes through this.
  transform() {
    const [x, y] = this.at([0, 0]);
    return `matrix(${this.scale} 0 0 ${-this.scale} ${x} ${y})`;
  }

  fit(points, mode = this.mode) {
    const range = (axis) => [Math.min(...points.map((p) => p[axis])), Math.max(...points.map((p) => p[axis]))];
    const [x0, x1] = range(0), [y0, y1] = range(1), [width, height] = this.size;
    const scale = Math.min((width - 2 * EDGE_PX) / Math.max(x1 - x0, 1e-3), (height - 2 * EDGE_PX) / Math.max(y1 - y0, 1e-3));
    Object.assign(this, { mode, zoomed: false, x: (x0 + x1) / 2, y: (y0 + y1) / 2, scale: Math.min(Math.max(scale, 1e-3), 1e5) });
    this.tell();
  }

  shows(place, edge = 0) {
    const [x, y] = this.at(place), [width, height] = this.size;
    return x >= edge && y >= edge && x <= width - edge && y <= height - edge;
  }

  // Keeps targets in view: an area that was not zoomed into grows to hold them, another one moves.
  follow(targets, area) {
    if (this.mode !== "targets" || !targets.length || targets.every((place) => this.shows(place, EDGE_PX / 2))) return;
    if (!this.zoomed) return this.fit([...area, ...targets]);
    const middle = (axis) => (Math.min(...targets.map((p) => p[axis])) + Math.max(...targets.map((p) => p[axis]))) / 2;
    [this.x, this.y] = [middle(0), middle(1)];
    this.tell();
  }

  tell() {
    this.svg.dataset.mode = this.mode;
    this.svg.dataset.view = `${this.x} ${this.y} ${this.scale}`;
    this.changed();
  }

  pan(right, up) {
    this.x += right / this.scale;
    this.y += up / this.scale;
    this.mode = "free";
    this.tell();
  }

  // Zooms, and leaves one place where it is. A view that no longer holds its targets stops to follow them.
  zoom(factor, [x, y] = [this.x, this.y]) {
    const scale = Math.min(Math.max(this.scale * factor, 1e-3), 1e5), share = this.scale / scale;
    Object.assign(this, { x: x + (this.x - x) * share, y: y + (this.y - y) * share, scale, zoomed: true });
    if (this.mode === "site" || !(this.targets?.() ?? []).every((place) => this.shows(place))) this.mode = "free";
    this.tell();
  }

  listen() {
    const { svg } = this, pointers = new Map();
    const apart = () => {
      const [a, b] = [...pointers.values()];
      return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    };
    svg.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event);
      svg.setPointerCapture(event.pointerId);
    });
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, (event) => pointers.delete(event.pointerId));
    svg.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      if (pointers.size === 1) this.pan(before.clientX - event.clientX, event.clientY - before.clientY);
      else {
        const was = apart();
        pointers.set(event.pointerId, event);
        const [a, b] = [...pointers.values()];
        const middle = { clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 };
        this.zoom(apart() / Math.max(was, 1), this.place(middle));
      }
      pointers.set(event.pointerId, event);
    });
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1 / ZOOM : ZOOM, this.place(event));
    }, { passive: false });
    svg.addEventListener("keydown", (event) => {
      const step = this.size[0] / 10;
      const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
      const others = { "+": () => this.zoom(ZOOM), "=": () => this.zoom(ZOOM), "-": () => this.zoom(1 / ZOOM), 0: () => this.show("targets"), 1: () => this.show("site") };
      if (moves[event.key]) this.pan(...moves[event.key]);
      else if (others[event.key]) others[event.key]();
      else return;
      event.preventDefault();
    });
  }
}
