/** Shapes that modules share: what the server sends, and what a module of the page is given. */

/** A table as columns, a number per row; ``term:<key>`` are a method's own numbers. */
export type Columns<T> = { [name in keyof T]: T[name][] } & { [term: `term:${string}`]: (number | null)[] };

export interface TokenRow { id: number; source: number; pool: number; step: number }
export interface StepRow {
  context: number; drafted: number; accepted: number; emitted: number; bonus: number; depth: number;
  route: string; reason: string; outcome: string; origins: string;
  draft_ms: number; verify_ms: number; commit_ms: number; elapsed_ms: number;
}
export interface NodeRow {
  step: number; node: number; parent: number; token: number; status: string; origin: string; reason: string;
  source: number; pool: number; prob: number | null; rank: number;
}
export interface CandidateRow {
  step: number; position: number; pool: number; length: number; rank: number; score: number | null;
  chosen: boolean; would_accept: number; excluded: string;
}
export interface GuessRow {
  step: number; node: number; rank: number; token: number;
  draft_prob: number | null; prob: number | null; residual: number | null;
}
export interface PieceRow { id: number; hex: string; special: boolean }

/** A recorded run as ``api/traces/<id>`` sends it; ``live`` while it goes on, then ``tokens`` may be missing. */
export interface Trace {
  run: Run;
  tokens: Columns<TokenRow>;
  steps: Columns<StepRow>;
  nodes: Columns<NodeRow>;
  candidates: Columns<CandidateRow>;
  guesses?: Columns<GuessRow>;
  pieces: Columns<PieceRow>;
  live?: Live;
  [table: string]: any;
}
export interface Live { state: "queued" | "running"; seq: number; ahead?: number }

/** What is known of a run as a whole. */
export interface Run {
  id: string; title: string; complete: boolean; stop: string; error?: string; prompt_length: number;
  method: { name: string; title: string; lossless: boolean; params: Record<string, any>; controls: Control[] };
  metrics: Record<string, number | null>;
  [more: string]: any;
}

/** A run in the library, as ``api/runs`` lists it. */
export interface RunRecord {
  id: string; kind: string; title: string; method: string; method_name: string; lossless?: boolean;
  tokens?: number; steps?: number; tokens_per_step?: number | null; tags?: string[]; keep?: boolean; mine?: boolean;
  [more: string]: any;
}

/** One parameter of a method, or one setting: what a form's field is made of. */
export interface Control {
  name: string; label: string; help: string; kind: "int" | "float" | "bool" | "choice" | "str"; default: any;
  low: number | null; high: number | null; step: number | null; choices: string[]; optional: boolean;
}

/** The methods of the server, as ``api/methods`` lists them; ``reason``: why nothing can run. */
export interface Catalog { methods: MethodCard[]; settings: Control[]; state: string; reason: string }
export interface MethodCard {
  name: string; title: string; summary: string; paper: string; lossless: boolean; missing: string; pooled: boolean;
  controls: Control[];
}

/** What a number means. */
export interface Term { label: string; formula: string; code: string; help: string }

/** What ``mount`` of a part gets: see ``gr.HTML``. */
export interface Part {
  element: HTMLElement;
  props: { value: string };
  watch: (name: string, fn: () => void) => void;
  trigger: (event: string) => void;
}
