// Small pictures of pairs, cut from sheets of many.

import { has, isReport, json, pictureAddress } from "gloam/source";

/** Number of pairs on one sheet. */
const TILES = 48;

/** The place of each picture: the address of a sheet and the row on it. */
export class Thumbs {
  constructor(run, seed) {
    this.run = run;
    this.seed = seed;
    this.places = null;
  }

  /** Load the sheets of a report, in which only some pairs have pictures. */
  async load() {
    const path = `runs/${this.run.id}/sheets?seed=${this.seed}`;
    if (!isReport || !has(path)) return;
    const { content } = await json(path);
    this.places = new Map();
    content.sheets.forEach((cells, number) =>
      cells.forEach((cell, place) => this.places.set(cell, [number, place])));
  }

  /** The sheet and the place on it for the pair at `place` of an order of cells. */
  find(order, place) {
    const path = `runs/${this.run.id}/sheet?seed=${this.seed}`;
    if (isReport) {
      const found = this.places?.get(order[place]);
      if (!found) return null;
      return { address: pictureAddress(`${path}&number=${found[0]}`), row: found[1] };
    }
    const first = place - (place % TILES);
    const cells = Array.from(order.slice(first, first + TILES));
    return { address: pictureAddress(`${path}&cells=${cells.join(",")}`), row: place % TILES };
  }
}
