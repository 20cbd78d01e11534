// Polling of data that changes while the page is open.

import { isReport } from "gloam/source";

// A task takes at most this share of the time, because the run itself may need the processor.
const SHARE = 1 / 40;

/**
 * Call a task now, and again `seconds()` after each call has ended (later if it takes long), while
 * the page is visible. In a report, which does not change, the task is called once.
 * @returns {() => void} a function that stops the polling
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
