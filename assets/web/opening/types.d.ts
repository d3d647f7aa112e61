/* What the opening draws. Global. */

/** A lane of the race: where it is drawn, and how many of its steps are there. */
interface OpeningLane {
  element: HTMLElement; text: HTMLElement; count: HTMLElement; facts: HTMLElement;
  lane: import("specviz/compare/lane.js").Lane;
  steps: number;
}
