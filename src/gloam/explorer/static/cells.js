// The details of one cell: from the server, or computed from the arrays of a report.

import { arrays, has, isReport, json, SourceError } from "gloam/source";

const NEIGHBOURS = 8;
const NEVER = 2 ** 31 - 1;

/** The elite of a cell and its neighbours. */
export async function cellDetails(run, seed, cell) {
  if (!isReport) return (await json(`runs/${run.id}/cells/${cell}?seed=${seed}`)).content;
  const path = `runs/${run.id}/rows?seed=${seed}`;
  const elites = await arrays(`runs/${run.id}/elites?seed=${seed}`);
  const row = elites.cell.indexOf(cell);
  // In a reduced grid, the cell of the best elite of the block.
  cell = row >= 0 && elites.original ? elites.original[row] : cell;
  const found = { cell, seed, filled: row >= 0, ...(await item(run, seed, cell)) };
  if (row < 0) return found;
  Object.assign(found, {
    objective: elites.objective[row],
    distance: elites.distance ? elites.distance[row] : null,
    found: elites.found ? between(run, elites.found[row]) : null,
    neighbours: [],
    python: run.python.replaceAll("{cell}", String(cell)).replaceAll("{seed}", String(seed)),
  });
  found.fields = await fieldTexts(run, seed, row);
  if (!has(path)) return found;
  const rows = await arrays(path);
  const { measure_dim, solution_dim } = rows.about;
  const part = (name, size) => (size ? Array.from(rows[name].subarray(row * size, (row + 1) * size)) : undefined);
  Object.assign(found, {
    measures: part("measures", measure_dim),
    solution: part("solutions", solution_dim),
    values: named(rows.about, part("values", rows.values && solution_dim)),
    measure_dim,
    solution_dim: rows.about.solution_length,
    neighbours: neighbours(run, elites, rows.measures, measure_dim, row),
  });
  return found;
}

/** The fields that a report contains, as text by name. */
async function fieldTexts(run, seed, row) {
  const texts = {};
  for (const [number, { kind, title }] of (run.columns ?? []).entries()) {
    const path = `runs/${run.id}/column?seed=${seed}&number=${number}`;
    if (kind === "field" && has(path)) texts[title] = String(Number((await arrays(path)).value[row].toPrecision(6)));
  }
  return texts;
}

/** The discount of an elite; `null` without a model. */
export async function cellDiscount(run, seed, cell) {
  if (isReport || !run.model || seed !== run.seeds[0]) return null;
  return (await json(`runs/${run.id}/cells/${cell}/discount?seed=${seed}`)).content.discount;
}

/** The variables of a space as text by name; `null` without a space. */
function named({ variables, choices }, values) {
  if (!values) return null;
  const short = (value) => String(Number.isInteger(value) ? value : Number(value.toPrecision(6)));
  const known = (value, k) => (choices[k] ? choices[k][value] : short(value));
  const text = (value, k) => (Number.isNaN(value) ? "" : known(value, k)); // inactive
  return Object.fromEntries(variables.map((name, k) => [name, text(values[k], k)]));
}

async function item(run, seed, cell) {
  if (!run.dataset || !has(`runs/${run.id}/pairs?seed=${seed}`)) return {};
  try {
    const { content } = await json(`runs/${run.id}/pairs?seed=${seed}`);
    return { name: content.names[cell], label: content.labels?.[cell] ?? null };
  } catch (error) {
    if (error instanceof SourceError) return {};
    throw error;
  }
}

function between(run, found) {
  const earlier = run.moments.filter((at) => at < found);
  return { after: earlier.at(-1) ?? 0, until: found === NEVER ? run.iteration : found };
}

/** The nearest other elites in measure space. */
function neighbours(run, elites, measures, size, row) {
  const cosine = run.archive.metric === "cosine";
  const found = [];
  for (let other = 0; other < elites.cell.length; other++) {
    if (other === row) continue;
    let [product, own, others, apart] = [0, 0, 0, 0];
    for (let i = 0; i < size; i++) {
      const [a, b] = [measures[row * size + i], measures[other * size + i]];
      product += a * b;
      own += a * a;
      others += b * b;
      apart += (a - b) * (a - b);
    }
    const distance = cosine ? 1 - product / (Math.sqrt(own * others) || 1) : Math.sqrt(apart);
    found.push({ cell: elites.cell[other], objective: elites.objective[other], distance });
  }
  return found.sort((a, b) => a.distance - b.distance).slice(0, NEIGHBOURS);
}
