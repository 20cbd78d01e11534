// The source of the data: the explorer's server, or the report that contains this page.

const embedded = document.getElementById("report-data");
const report = embedded ? JSON.parse(embedded.textContent) : null;
const kept = new Map();

/** Whether the page is a report, which contains all its data. */
export const isReport = report !== null;

/** Version and start page of the report. */
export const reportAbout = report?.about ?? {};

/** The reason why there is no data. */
export class SourceError extends Error {}

/** A JSON answer; `tag` changes when the content does. */
export async function json(path) {
  if (isReport) return { content: embeddedJson(path), tag: "report" };
  const answer = await request(path);
  return { content: await answer.json(), tag: answer.headers.get("etag") };
}

/** Packed arrays by name, and their description under `about`. */
export async function arrays(path) {
  if (!isReport) return unpack(await (await request(path)).arrayBuffer());
  if (!kept.has(path)) kept.set(path, await unpackEmbedded(path));
  return kept.get(path);
}

/** Tells whether an answer is out of date, because it arrived after a later request was made. */
export class Turns {
  last = 0;

  /** Begin a request; the function returned tells whether it is still the last one. */
  begin() {
    const turn = ++this.last;
    return () => turn === this.last;
  }
}

/** The address of a picture; `null` if a report does not contain it. */
export function pictureAddress(path) {
  if (!isReport) return `/api/${path}`;
  if (!(path in report.pictures)) return null;
  if (!kept.has(path)) {
    const bytes = bytesOf(report.pictures[path]);
    // A drawing may be an SVG, which is shown as an image only: there it runs no scripts.
    const type = bytes[0] === "<".charCodeAt(0) ? "image/svg+xml" : "image/png";
    kept.set(path, URL.createObjectURL(new Blob([bytes], { type })));
  }
  return kept.get(path);
}

/** Whether the data is available; a server may be asked for everything. */
export function has(path) {
  return !isReport || path in report.json || path in report.arrays;
}

async function request(path) {
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { cache: "no-cache" });
  } catch {
    throw new SourceError("The explorer is not responding. Is `gloam explore` still running?");
  }
  if (answer.ok) return answer;
  let reason = `The explorer responded with status ${answer.status}.`;
  try {
    reason = (await answer.json()).error ?? reason;
  } catch {
    // A response without a reason.
  }
  throw new SourceError(reason);
}

function embeddedJson(path) {
  if (!(path in report.json)) throw new SourceError("The report does not contain this part.");
  return report.json[path];
}

async function unpackEmbedded(path) {
  const text = report.arrays[path];
  if (text === undefined) throw new SourceError("The report does not contain this part.");
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return unpack(await new Response(stream).arrayBuffer());
}

function bytesOf(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

const VIEWS = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  uint8: Uint8Array,
};

/** The inverse of `packed` in page.py. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const found = { about: header.about };
  for (const { name, dtype, shape, offset } of header.arrays) {
    const size = shape.reduce((product, side) => product * side, 1);
    found[name] = new VIEWS[dtype](buffer, 4 + length + offset, size);
  }
  return found;
}
