// Asking again: data that changes while it is looked at.

import { isReport } from "gloam/source";

// A task takes at most this share of the time: the run that is watched may need the processor.
const SHARE = 1 / 40;

/**
 * Call a task now and then again, each time `seconds()` after it has ended, while the page is seen;
 * later if the task takes long.
 * A report does not change: there the task is called once.
 * @returns {() => void} a function that ends it
 */
export function poll(task, seconds) {
  let ended = false;
  let timer = 0;
  const run = async () => {
    clearTimeout(timer);
    if (ended) return;
    const began = performance.now();
    if (!document.hidden) await task();
    const wait = Math.max(1000 * seconds(), (performance.now() - began) / SHARE);
    if (!ended && !isReport) timer = setTimeout(run, wait);
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
