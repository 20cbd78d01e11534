// Elements of the page. Names from files become text, never markup.

/**
 * An element with properties and children.
 *
 * Properties that begin with "on" are listeners; `class`, `aria-...`, `data-...` and the like are
 * attributes. Children are elements or texts; `null` and `false` are skipped.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Replace all children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Announce a change to screen readers. */
export function announce(text) {
  const place = document.getElementById("news");
  if (place && place.textContent !== text) place.textContent = text;
}

/** A select box with its label. */
export function choice(label, options, chosen, onchange) {
  const select = h(
    "select",
    { onchange: () => onchange(select.value) },
    options.map(({ value, title }) => h("option", { value, selected: value === chosen }, title)),
  );
  return h("label", { class: "control" }, h("span", {}, label), select);
}

/** Copy a text, and confirm it on the button. */
export async function copyText(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyBySelection(text);
  }
  const before = button.textContent;
  button.textContent = done ? "Copied" : "Press Ctrl-C";
  announce(button.textContent);
  setTimeout(() => (button.textContent = before), 1500);
}

/** Pages opened from a file have no clipboard; a selection can still be copied. */
function copyBySelection(text) {
  const area = h("textarea", { class: "unseen", value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
