// Light and dark theme: that of the system, until the user chooses.

import { h } from "gloam/dom";

const KEY = "gloam-theme";
const listeners = new Set();

/** Call a function when the theme changes, as long as an element is on the page. */
export function onThemeChange(element, listener) {
  listeners.add({ element, listener });
}

function tell() {
  for (const entry of listeners) {
    if (entry.element.isConnected) entry.listener();
    else listeners.delete(entry);
  }
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // a page opened from a file
  }
}

/** Apply the theme chosen last time. */
export function startTheme() {
  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}

/** Switch between light and dark. */
export function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem(KEY, root.dataset.theme);
  } catch {
    // The choice is not remembered.
  }
  tell();
}

/** The button that switches the theme. */
export function themeButton() {
  const label = "Switch between light and dark (t)";
  return h("button", { class: "icon", title: label, "aria-label": label, onclick: switchTheme }, "◐");
}
