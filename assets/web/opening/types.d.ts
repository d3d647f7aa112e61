/* What the opening draws. Global. */

/** A lane of the race: where it is drawn, its text in stretches, and how much of it is there. */
interface OpeningLane {
  element: HTMLElement; text: HTMLElement; count: HTMLElement; facts: HTMLElement;
  lane: import("specviz/compare/lane.js").Lane;
  parts: import("specviz/compare/lane.js").Written[];
  next: number; steps: number;
}
