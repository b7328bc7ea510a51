// Elements, made and kept up to date. Text from outside only ever becomes text.

const NS = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function make(name, text, kind) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// An element of a picture.
export function element(name, attributes, parent) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

// A text in a picture.
export function label(parent, x, y, text, kind = "") {
  const made = element("text", { x, y, class: kind }, parent);
  made.textContent = text;
  return made;
}

// What has not changed is left alone: a tooltip stays open, a click is not lost.
export function say(target, text) {
  const said = String(text ?? "");
  if (target.textContent !== said) target.textContent = said;
}

// As many children as there are items, each made once and then updated.
export function keep(parent, items, create, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  items.forEach((item, i) => {
    if (i >= parent.children.length) parent.append(create(item, i));
    update(parent.children[i], item, i);
  });
}

// Names and values.
export function facts(list, rows) {
  const create = () => {
    const row = make("div");
    row.append(make("dt"), make("dd"));
    return row;
  };
  keep(list, rows, create, (row, [name, value]) => {
    say(row.children[0], name);
    say(row.children[1], value);
  });
}

// The choices of a select, which keeps its place while someone uses it.
export function choices(select, names, current, words = (name) => name) {
  keep(select, names, () => make("option"), (option, name) => {
    if (option.value !== String(name)) option.value = name;
    say(option, words(name));
  });
  const index = names.indexOf(current);
  if (select.selectedIndex !== index) select.selectedIndex = index;
}

export function press(button, pressed) {
  if (button.getAttribute("aria-pressed") !== String(pressed)) button.setAttribute("aria-pressed", pressed);
}

// A colour of its own, as different from those of others as their number allows.
export function tint(target, hue) {
  target.dataset.hue = hue;
  target.style.setProperty("--hue", hue);
}

export const nodeHue = (node, count) => Math.round((360 * node) / Math.max(count, 1) + 210) % 360;

export const fixed = (value, digits, unit = "") =>
  value == null || !Number.isFinite(value) ? "–" : value.toFixed(digits).replace("-", "−") + unit;

// A length in the unit that suits it.
export function length(metres) {
  if (metres == null || !Number.isFinite(metres)) return ["–", ""];
  const size = Math.abs(metres);
  if (size >= 1) return [metres.toFixed(2), "m"];
  return size >= 0.01 ? [(100 * metres).toFixed(1), "cm"] : [(1000 * metres).toFixed(1), "mm"];
}

export const inWords = (metres) => length(metres).join(" ").trim();

export const clockTime = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function quantile(values, share) {
  if (!values.length) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

// A round step, 1, 2 or 5 times a power of ten, of which about `count` make the span.
export function roundStep(span, count) {
  const power = 10 ** Math.floor(Math.log10(span / count));
  return power * ([1, 2, 5].find((factor) => span / (factor * power) <= count) ?? 10);
}
