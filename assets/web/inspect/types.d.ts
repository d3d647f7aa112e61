/* Shapes of the inspector's own folder. */

interface InspectorOptions {
  /** Takes the keyboard when a trace is loaded. */
  autofocus?: boolean;
  /** False: neither links nor downloads nor presenting. */
  actions?: false | InspectorActions;
  /** False: no presenter mode of its own; else the tab that an address with present=1 means. */
  present?: false | string;
  /** False: no tabs Why and Details; the legend and a step's facts stand under the sentence, and the page is as long as it gets. */
  drawer?: false;
  /** Stands under the head. */
  strip?: Node;
  /** True: the page's own bar has the actions. */
  bar?: boolean;
}
/** An address, or a function of the state that gives one. */
type Address = string | ((state: InspectorState) => string);
interface InspectorActions {
  /** True: this page's address. */
  link?: (() => string) | true;
  /** By name: trace, html, … */
  downloads?: Record<string, Address>;
  attribute?: () => unknown;
  /** The step that is shown as a figure for a paper. */
  figure?: (state: InspectorState) => string;
}
interface InspectorState { trace: string | null; step: number; pins: Position[] }
/** One token: ``node`` of the tree of ``step`` (-1: the target's own, null: none), ``position`` of the text (-1: none). */
interface SelectedToken { step: number; node: number | null; position: Position }
/** A tab beside the text. */
interface PanelTab {
  name: string; label: string; element?: HTMLElement; look?: string;
  /** What it can show, and which of it is in sight. */
  forms?: PanelTab[]; form?: string;
  /** Whether the tree stands below its panel, and what stands below the tree. */
  tree?: boolean; below?: HTMLElement;
  /** Why it cannot be opened now, and a button that helps. */
  off?: string; way?: () => Element | null;
  open?: () => void; close?: () => void;
}
/** Which steps the timeline brings out, and the keys [ and ] lead to. */
type StepFilter = "all" | "misses" | "worst";
interface InspectorEvents {
  step: { step: number };
  pin: { pins: Position[] };
  resized: null;
  /** Whether the run's model is here to be asked: why not, in a sentence, or "". */
  able: string;
}

/** What a step, or a position of the text, is told with. */
type Told<Result = Child[]> = (owner: Inspector, view: StepView) => Result;
type OfStep<Result> = (model: Model, step: number) => Result;
type OfPosition<Result> = (inspector: Inspector, position: Position) => Result;
type TreeView = import("specviz/inspect/tree.js").TreeView;
type DrafterView = import("specviz/inspect/drafter.js").DrafterView;

/** Draws a step's part of the timeline at x. */
type DrawStep = (pen: Pen, x: number, wide: number, value: number) => void;
type TakeKey = (inspector: Inspector, event: KeyboardEvent, inside: boolean) => void;
/** What of an inspector is on or off. */
type Switch = "whitespace" | "heat" | "offers" | "follow";
type MakeToggle = (
  tip: Tooltip, label: string, help: string, on: boolean, flip: (on: boolean) => void
) => HTMLButtonElement;
type KeyedButton = (label: string, key: string, act: () => void, ...inside: Child[]) => HTMLButtonElement;
type GoTo = (owner: Inspector, position: Position, ...inside: Child[]) => HTMLButtonElement;
type MakeCsv = (model: Model, table: "nodes" | "candidates" | "guesses") => string;
type NumberOf = (owner: Inspector, node: TreeNode | null | undefined, key: string) => number | null;

type PaneSide = "text" | "pool";
/** A mark on the token at a position: a class, and data that the style sheet writes beside it. */
type Mark = [position: Position, name: string, data?: Record<string, string | number>];
/** The marks of a layer: class → element → data. */
type MarkLayer = Map<string, Map<HTMLElement, Mark[2]>>;
/** A row of tokens: ``number`` 0 where a long line goes on, ``size`` in characters. */
interface TokenLine {
  element: HTMLElement; line: HTMLElement; number: number; count: number; size: number; label: HTMLElement | null;
  future?: boolean;
  /** Its first letter is there. */
  begun?: boolean;
}
/** A mark in a pane's minimap. */
interface MapMark { from: Position; to: Position; color: string; wide?: boolean; alpha?: number }

/** Something in a draft tree's drawing, with its place. */
interface Placed {
  /** ``row``: of the path, beside which it stands; ``level``: lines below the first of its row. */
  depth: number; column: number; row: number; level: number; children: TreeItem[];
  x: number; y: number; width: number; high: number;
  text: string; line: string; tag: string;
  prob: number | null;
}
/** ``hidden``: how many tokens below it are folded. */
interface NodeItem extends Placed { kind: "node"; node: TreeNode; hidden?: number }
/** The target's own token; ``rank`` among its first choices. */
interface BonusItem extends Placed { kind: "bonus"; rank: number }
/** Folded nodes, of which ``hidden`` stay folded below the others once it is opened; ``key`` names the fold. */
interface ChipItem extends Placed { kind: "chip"; count: number; hidden: number; key: string; what: string }
/** Tokens in a row that share their fate, drawn as one where the tree would be too high. */
interface StretchItem extends Placed { kind: "stretch"; nodes: TreeNode[] }
type TreeItem = NodeItem | BonusItem | ChipItem | StretchItem;

/** A tree's items in their places, the height of a row, and its size in pixels at full scale. */
interface Laid { placed: TreeItem[]; row: number; width: number; height: number }

/** Draws in a box of the tree: an item, or a part of a node. */
type NodeBox = import("specviz/inspect/tree_boxes.js").Box;
type DrawItem = (tree: TreeView, box: NodeBox, item: TreeItem, view: StepView) => void;

/** A token at a place of the tree; ``node`` is -1 for the target's own token. */
interface NodeChoice { parent: number; node: number; token: number }
/** A place that was looked at. */
interface Look { position: Position; weight: number | null }
/** The panel that tells about a chosen item of the tree. */
interface Picker {
  on: boolean; shading: boolean; look: Look[];
  /** Whether tokens in a row may be drawn as one while it is on. */
  folds?: boolean;
  choice(item: TreeItem | null): NodeChoice | null;
  isChosen(item: TreeItem): boolean;
  preview(item: TreeItem | null): void;
  choose(choice: NodeChoice | null): void;
  walk(by: number): void;
}
/** A token with the probabilities of drafter (q) and target (p). */
interface Guess { token: number; rank: number; q: number | null; p: number | null; residual: number | null }
/** A token that was left out of a draft: the tokens from the root on to it, the drafter's probability and score. */
/** ``cost``: left out as its row costs more than it brings; ``score`` is its survival then. */
interface PrunedNode { path: number[]; q: number | null; score: number | null; wrote: boolean; why: string }
/** A candidate of a position of a block. */
interface LatticeCandidate { token: number; rank: number; logprob: number | null; walked: boolean; written: boolean }
type MakeColumn = (
  position: LatticePosition, view: StepView, label: (token: number) => string, most: number
) => LatticeBox[];
interface LatticeBox { text: string; depth: number; top: number; name: string; about: string; small: string }
/** A position of a block; ``drafted``: its token was sent to the target. */
interface LatticePosition {
  depth: number; written: number | undefined; drafted: boolean; candidates: LatticeCandidate[];
}
interface LatticeEdge { depth: number; before: number; rank: number; score: number | null; walked: boolean; shade: number }
interface Lattice { positions: LatticePosition[]; edges: LatticeEdge[]; root: number }
/** What prompt tokens guessed at one distance: a row per trained vector. */
interface PromptGuess { distance: number; probe: number; rows: Choice[]; joint: Choice | null }
/** A guess that was offered to the next step. */
interface OfferedGuess extends Choice { rank: number }
/** What a prompt token guessed, and what the text became there (undefined: not written). */
interface PromptOutcome {
  distance: number; probe: number; first: Choice | null; others: OfferedGuess[]; position: Position;
  became: number | undefined;
}

/** The position where draft model and target are compared: ``beta`` the overlap of both distributions. */
interface Place { view: StepView; shown: NodeChoice; beta: number | null }
/** A guess with what became of it in its step. */
interface Judged extends Guess { role: string; words: string }
/** A panel's look at the text. */
interface Looked { owner: Inspector; shading: boolean; look: Look[] }
/** A part of a bar: its name, its size, what is written for it, its tooltip, its shade. */
interface SharePart { name: string; value: number; shown: string; tip: Child[]; look: string }
/** An end of a drawn line: its point, the pane's edges, whether it lies above (-1) or below (1) what is in sight. */
interface End { x: number; y: number; left: number; hidden: number }
/** One token of an edit script: "=" in both lists at the places a and b, "+" in the first only, "−" in the second. */
type Edit = [sign: "=" | "+" | "−", a: number, b: number];
/** Of edits between the output's tokens and plain decoding's. */
type OfEdits<Result> = (edits: Edit[], mine: number[], plain: number[]) => Result;
type BoxPart = (
  name: string, wanted: boolean, make: () => SVGElement, before?: Element | null
) => SVGElement | null;
type PickPrompt = (row: PromptOutcome, seen: PromptOutcome | null) => Child;
