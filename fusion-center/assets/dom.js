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

export const fixed = (value, digits, unit = "") =>
  value == null || Number.isNaN(value) ? "–" : value.toFixed(digits) + unit;

export const centimetres = (value) => fixed(value == null ? null : 100 * value, 1, " cm");
