// Asking again: data that changes while it is looked at.

import { isReport } from "gloam/source";

/**
 * Call a task now and then again, each time `seconds()` after it has ended, while the page is seen.
 * A report does not change: there the task is called once.
 * @returns {() => void} a function that ends it
 */
export function poll(task, seconds) {
  let ended = false;
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    if (ended) return;
    if (!document.hidden) await task();
    if (!ended && !isReport) timer = setTimeout(run, 1000 * seconds());
  };
  const seen = () => !document.hidden && run();
  document.addEventListener("visibilitychange", seen);
  run();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
