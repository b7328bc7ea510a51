// Pictures of plots: what is seen, as PNG.

import { byId } from "./dom.js";

const SCALE = 2;
// How long a browser may take to begin with a download.
const PATIENCE_MS = 60000;
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "paint-order", "vector-effect"];

// A copy that looks the same without the page's style sheet.
function standalone(svg) {
  const copy = svg.cloneNode(true), own = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((made, i) => {
    const look = getComputedStyle(own[i]);
    for (const name of LOOKS) made.setAttribute(name, look.getPropertyValue(name));
  });
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", SCALE * width);
  copy.setAttribute("height", SCALE * height);
  return { copy, ground: getComputedStyle(svg.closest(".card")).backgroundColor, width, height };
}

async function loaded(svg) {
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
  const picture = new Image();
  picture.src = url;
  await picture.decode();
  URL.revokeObjectURL(url);
  return picture;
}

export async function pictureOf(id) {
  const { copy, ground, width, height } = standalone(byId(id)), canvas = document.createElement("canvas");
  Object.assign(canvas, { width: SCALE * width, height: SCALE * height });
  const context = canvas.getContext("2d");
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (id === "map") context.drawImage(byId("surface"), 0, 0, canvas.width, canvas.height);
  context.drawImage(await loaded(copy), 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function startSaving() {
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", async () => {
      const link = document.createElement("a"), url = URL.createObjectURL(await pictureOf(button.dataset.save));
      Object.assign(link, { href: url, download: `hyloc-${button.dataset.save}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), PATIENCE_MS);
    });
  }
}
