/* The words that all folders share: what the server sends of a run, and a run as the views see it. Global: JSDoc says
   `@param {Trace} trace`. Shapes of one folder alone stand in its own types.d.ts. */

// ---- a trace as sent: decoders/trace/tables.txt says what every column holds -----------------------------------------

/** A table: a list of values per column. ``term:<key>`` are a method's own numbers, null where not measured. */
type Columns<Row> = { [name in keyof Row]: Row[name][] } & { [term: `term:${string}`]: (number | null)[] | undefined };

interface PieceRow { id: number; hex: string; special: boolean }
interface TokenRow {
  id: number; segment: string; passage: number; step: number; kind: "prompt" | "accepted" | "bonus" | "plain";
  origin: string; source: number; pool: number; prob: number | null; rank: number;
}
interface StepRow {
  context: number; route: string; reason: string; drafted: number; depth: number; accepted: number; emitted: number;
  bonus: number; outcome: "full" | "partial" | "none" | "plain"; origins: string; entropy: number | null;
  draft_ms: number | null; verify_ms: number | null; decide_ms: number | null; commit_ms: number | null; elapsed_ms: number | null;
  engine: string; engine_rows: number | null; engine_keys: number | null;
}
interface NodeRow {
  step: number; token: number; parent: number; depth: number; origin: string; source: number; pool: number;
  draft_prob: number | null; prob: number | null; rank: number; status: NodeStatus; reason: string;
}
type NodeStatus = "root" | "accepted" | "rejected" | "unreached";
interface TargetRow { step: number; node: number; token: number; prob: number }
interface CandidateRow {
  step: number; position: number; pool: number; score: number | null; length: number; rank: number; chosen: boolean;
  excluded: string; would_accept: number;
}
interface GuessRow {
  step: number; node: number; token: number; rank: number; draft_prob: number; prob: number; residual: number | null;
}
interface AttentionRow { step: number; node: number; layer: number; head: number; position: number; weight: number }
interface ProbeRow { step: number; parent: number; offset: number; kind: string; token: number; prob: number }
interface PrunedRow { step: number; token: number; parent: number; draft_prob: number; score: number; why?: string }
interface AssistantRow { step: number; token: number; hex: string; draft_prob: number; first: number; last: number }
interface LatticeRow {
  step: number; depth: number; rank: number; token: number; logprob: number; walked: boolean;
}
interface TransitionRow { step: number; depth: number; before: number; rank: number; score: number }
interface PoolRow { position: number; id: number; passage: number }

/** The tables of a trace by name: each as columns. */
interface Tables {
  pieces: Columns<PieceRow>;
  tokens: Columns<TokenRow>;
  steps: Columns<StepRow>;
  nodes: Columns<NodeRow>;
  targets: Columns<TargetRow>;
  candidates: Columns<CandidateRow>;
  guesses?: Columns<GuessRow>;
  attention?: Columns<AttentionRow>;
  probes: Columns<ProbeRow>;
  pruned?: Columns<PrunedRow>;
  assistant?: Columns<AssistantRow>;
  lattice?: Columns<LatticeRow>;
  transitions?: Columns<TransitionRow>;
  pool?: Columns<PoolRow>;
  plain?: Columns<{ id: number }>;
}

/** A recorded run, or what there is of one that goes on, as ``api/traces/<id>`` sends it. */
interface Trace extends Tables { schema: "spectrace/1"; run: Run; report?: Report; live?: Live }

/** What Python counted of a run, so that a page counts nothing: decoders/trace/report.py says what each part is. */
interface Report {
  /** Per key the value and the parts of ``Term.worked``. */
  metrics: Record<string, Record<string, number | null>>;
  /** Why a metric cannot be right. */
  doubts?: Record<string, string>;
  /** What has to be known of a metric, or why there is none. */
  notes?: Record<string, string>;
  outcomes: Count[]; routes: Count[];
  drafting: [key: string, ms: number | null][]; verify_ms: number;
  regrets: Regret[];
  oracle?: OracleReport;
  /** Lattices by what followed (``decoders/trace/lattice.py``). */
  lattices?: LatticeReport[];
  statuses: Record<"accepted" | "rejected" | "unreached" | "own" | "sources", number>;
  origins: [origin: string, nodes: number, accepted: number][];
  /** How drafted tokens are told apart by their origin. */
  legend?: Origin[];
  columns: Record<string, PlainColumn[]>;
}
interface LatticeReport {
  step: number; positions: number; covered: number; oracle: number; chosen: number; right: number;
}
/** The replay under a perfect ranking (``decoders/trace/oracle.py``): its steps at least and at most, output tokens written
 * by the end of each, what the ranking cost at most and at least, and both in words; or why there is none. */
type OracleReport =
  | { steps: number; most: number; recorded: number; ends: number[]; cost: number; least: number; branches: boolean; needs: string;
      words: string }
  | { why: string };
/** A step's outcome or route, and the number of such steps. */
type Count = [name: string, steps: number];
/** A column that no view draws in its own way: its values are shown as they are. */
interface PlainColumn { name: string; label: string; help: string; type: "int" | "float" | "bool" | "str" | "any" }

/** The same before the first token: no table yet. */
interface WaitingTrace {
  schema: "spectrace/1"; run: Pick<Run, "id" | "title" | "complete" | "error">; live: Live; tokens?: undefined;
}

/** Where a run that goes on stands; ``seq``: events up to it are in what was sent; ``ahead``: runs before it. */
interface Live { state: "queued" | "running" | "done"; seq: number; ahead: number }

/** Rows of one or more steps, to be appended to a trace. */
type TraceDelta = { [table in keyof Tables]?: Partial<Tables[table]> };

/** One event of ``api/live/<id>``: rows, a new state, or that the trace must be fetched again. */
interface LiveEvent {
  seq: number; delta?: TraceDelta; run?: Partial<Run>; state?: Live["state"]; ahead?: number; reload?: boolean;
  done?: boolean; stop?: string; error?: string; started?: boolean; unsaved?: string;
}

// ---- a run's record -----------------------------------------------------------------------------------------------

/** What is known of a run as a whole. */
interface Run {
  id: string; title: string; created: string; complete: boolean; stop: string; error: string; prompt_length: number;
  max_new_tokens: number; stop_ids: number[];
  method: RunMethod;
  model?: { name?: string; [fact: string]: string | number | boolean | null | undefined };
  /** Declared numbers, columns ``term:<key>`` of candidates, nodes and steps. */
  terms?: DeclaredTerm[]; node_terms?: DeclaredTerm[]; step_terms?: DeclaredTerm[];
  origins?: Origin[];
  sampling?: { temperature: number; top_k: number; top_p: number; seed?: number };
  metrics?: Metrics; metric_help?: MetricHelp[];
  timings?: { prefill_ms?: number; prepare_ms?: number; one_row_ms?: number; decode_ms?: number };
  memory?: { kv_bytes_per_token?: number; kv_bytes?: number; draft_bytes?: number };
  attention?: AttentionHeads | null;
  pool?: { label?: string; tokens?: number; passages?: number };
  /** What outlasts the run: whether earlier runs had left any, how much there was before it and is now. */
  kept?: { warm: boolean; unit: string; count: number; before?: number };
  /** The trained part that drafted: where it is from, its format and fingerprint, and what was found of it. */
  part?: DraftPart;
  compression?: Compression;
  /** The answer hoped for, and whose it is in words. */
  reference?: string; reference_of?: string;
  /** The step that it is shown at first, where no other is named. */
  opens?: number;
  /** The answer was given, not decoded. */
  forced?: boolean;
  /** Of an imported run: the columns that hold placeholders, and what the server said. */
  unknown?: string[];
  imported?: {
    source: string; title: string; said?: Record<string, Setting | number[]>; notes?: string[]; text?: string;
    /** Where the server's totals are not the sums of its steps as they were read. */
    warnings?: string[];
  };
  /** What a model of one's own computed again of an imported run, and how its drafts compare. */
  recomputed?: string[];
  redrafted?: { method: string; compared: number; differing: number };
  /** Drafted again as it stood at one step (what if, a lesson's question): not a whole run. */
  asked?: boolean;
}
interface DraftPart {
  training?: PartTraining;
  kind: string; from: string; format: string; title?: string; fingerprint?: string; features?: number[]; offset?: number;
  draft_vocab?: number; acceptance?: number; warnings?: string[]; verifier?: string;
}
/** Where drafted tokens come from: decoders/trace/origins.py. ``hue``: 0, or a colour of the theme. */
interface Origin { name: string; letter: string; label: string; sentence: string; outline: string; hue: number; beside?: boolean }
interface RunMethod {
  name: string; title: string; summary?: string; paper?: string; lossless: boolean; controls?: Control[];
  params?: Record<string, Setting>;
  /** What settings that were left open came to. */
  resolved?: Record<string, Setting>;
  /** The code of the run's drafter and verifier: file and name. */
  code?: { drafts: string; verifies: string };
}
/** The value of a parameter; null: left open, or off. */
type Setting = string | number | boolean | null;
/** A run's metrics by key, null where one is not defined. */
type Metrics = Record<string, number | null>;
interface MetricHelp { key: string; label: string; formula: string; unit: string; help: string }
/** A number that a method records beside the columns; a bar is drawn where ``low < high``. */
interface DeclaredTerm { key: string; label: string; help: string; low: number; high: number }
/** Which of the target's layers were looked at, with how many heads; ``probes``: by prompt tokens. */
interface AttentionHeads { label: string; layers: number[]; heads: number; probes?: boolean }
interface Compression {
  compressor?: string; context_tokens?: number; kept_tokens?: number; prompt_tokens_full?: number; ratio_asked?: number;
  compress_ms?: number;
}

// ---- a run as the views see it: base/model.js -----------------------------------------------------------------------

type Model = import("specviz/base/model.js").Model;
type Pieces = import("specviz/base/text.js").Pieces;
type Inspector = import("specviz/inspect/inspector.js").Inspector;

/** A position of the text, or (from POOL on) a place in the pool. */
type Position = number;
/** A stretch of positions. */
interface Span { start: Position; stop: Position }
/** Consecutive accepted tokens whose sources are consecutive too. */
interface CopiedRun extends Span { source: Position; step: number }
/** A node of a step's draft tree: ``index`` in the step, ``row`` in the table, ``span``: the source span's number. */
interface TreeNode {
  row: number; index: number; token: number; parent: number; depth: number; origin: string; source: Position;
  /** Whether it stands beside the main chain. */
  beside: boolean;
  draftProb: number | null; prob: number | null; rank: number; status: NodeStatus; reason: string; span: number;
  /** Which of two drafts has it, where one is drawn over the other. */
  draft?: "recorded" | "both" | "other";
}
/** One of the target's first choices after a node. */
interface Choice { token: number; prob: number }
/** A place that the method ranked; ``would``: tokens of its offer that equal the output, -1 until the run is over. */
interface Candidate {
  row: number; position: Position; score: number | null; length: number; rank: number; chosen: boolean;
  excluded: string; would: number;
}
/** Everything that is shown of one step. */
interface StepView extends StepRow {
  number: number;
  /** The position behind the last token written. */
  end: Position;
  /** The root's token id. */
  root: number;
  nodes: TreeNode[];
  /** Node → the target's first choices after it, likeliest first. */
  targets: Map<number, Choice[]>;
  /** The accepted nodes. */
  path: TreeNode[];
  /** Index of the last accepted node, 0 (the root) if there is none. */
  last: number;
  /** Source spans used by the tree, numbered from 1. */
  spans: (Span & { number: number })[];
  candidates: Candidate[];
  chosen: Candidate | null;
  best: Candidate | null;
  /** Rejected nodes where the target's own token stands. */
  refused: TreeNode[];
}
/** Tokens that are drawn as one: usually one each; tokens that share a grapheme share a cell. */
interface Cell { start: number; stop: number; text: string }
/** A token's piece of text. */
interface Piece { bytes: Uint8Array; special: boolean; text: string }
/** What a step lost by its ranking: accepted tokens of the chosen and of the best candidate, and their difference. */
interface Regret { step: number; chosen: number; best: number; tokens: number }

// ---- elements: base/dom.js ------------------------------------------------------------------------------------------

/** What an element holds: nodes, texts, lists of them; null, undefined and false are left out. */
type Child = Node | string | number | null | undefined | false | Child[];
/** Attributes and listeners (``onclick``); an attribute that is null or false is left out, true is an empty one. */
type Attributes<Target = Element> = { [name: string]: unknown } & {
  [name in keyof HTMLElementEventMap as `on${name}`]?:
    | ((event: HTMLElementEventMap[name] & { currentTarget: Target }) => unknown)
    | null;
};
/** An HTML element's name, and its classes behind dots: "p", "p.sv-note.sv-faint". */
type TagName = Tag | `${Tag}.${string}`;
type Tag = keyof HTMLElementTagNameMap;
type ElementOf<Name extends TagName> = HTMLElementTagNameMap[
  Name extends Tag ? Name : Name extends `${infer Its extends Tag}.${string}` ? Its : never
];
/** What a tooltip says: its nodes, made when it is shown. */
type Tip = () => Child[];
/** Where something is in the window. */
type Box = Pick<DOMRect, "left" | "right" | "top" | "bottom" | "width">;
type Tooltip = import("specviz/base/dom.js").Tooltip;
/** The theme's colours and fonts, for a canvas. */
type Colors = Record<
  | "accepted" | "rejected" | "own" | "ghost" | "line" | "faint" | "card" | "source" | "heat" | "pin" | "ink" | "raised"
  | "unreached"
  | "sans" | "mono", string
>;
/** Label and value; left out where the value is empty. */
type Fact = [label: string, value: Child];

// ---- lists of the server --------------------------------------------------------------------------------------------

/** A run in the library, as ``api/runs`` lists it; one that goes on has ``state`` and no numbers yet. */
interface RunRecord {
  id: string; kind: string; title: string; method: string; method_name?: string; created: string; mine: boolean;
  lossless?: boolean; forced?: boolean; model?: string; stop?: string; error?: string; steps?: number; tokens?: number;
  tokens_per_step?: number | null; prompt?: string; tags?: string[]; keep?: boolean; bytes?: number;
  /** Of a lossy run, where they are known: ``decoders/trace/metrics.toml``. */
  other_share?: number; divergence?: number;
  state?: Live["state"];
}

/** One parameter of a method, or one setting: what a form's field is made of. */
interface Control {
  name: string; label: string; help: string; kind: "int" | "float" | "bool" | "choice" | "str"; default: Setting;
  low: number | null; high: number | null; step: number | null; choices: string[]; optional: boolean;
}

/** The methods and settings that can be run here, as ``api/methods`` lists them; ``reason``: why nothing can run;
    ``opening``: the method of the run that the page opens on. */
interface Catalog {
  methods: MethodCard[]; verifiers?: VerifierCard[]; settings: Control[]; state: string; reason: string; note?: string; opening?: string;
}
/** Training of a part: tokens read, seconds, and on held-out text its acceptance, or how often its first guess is right. */
interface PartTraining { tokens?: number; seconds?: number; acceptance?: number; top1?: number }

interface MethodCard {
  name: string; title: string; summary: string; paper: string; lossless: boolean; missing: string; pooled: boolean;
  /** What it drafts with; "": nothing, or something else. */
  family: "" | "copy" | "ngram" | "draft model" | "heads";
  /** How the part was trained that it drafts with; empty without one. */
  trained: PartTraining;
  controls: Control[];
  /** What its runs leave behind for later ones, in a word; "": nothing. */
  keeps: string;
  /** Whether it drafts nothing; is chosen where nothing is; is compared where nothing is. */
  baseline: boolean; usual: boolean; compared: boolean;
  /** By what it finds an answer's sources, where Attribution may use it; "": it is no such method. */
  signal: string;
  /** Verifiers that can judge its drafts, and whether the output is then lossless; the parameters that its own one reads. */
  judges?: Record<string, boolean>; verifier_params?: string[];
}
/** A rule by which drafted tokens stand; ``greedy_match``: a greedy run has its tokens matched, as by all such rules. */
interface VerifierCard {
  name: string; title: string; source: string; summary: string; lossless: boolean; greedy_match: boolean;
  controls: Control[];
}
/** How much a method keeps of somebody's runs: ``count`` of ``unit`` (a plural), from ``runs`` runs. */
interface KeptAmount { count: number; unit: string; runs: number }

/** What a number means, and the code that makes it; ``worked``: the formula with a run's {parts}, of a metric. */
interface Term { label: string; formula: string; code: string; help: string; worked?: string }

// ---- parts of the page ----------------------------------------------------------------------------------------------

/** What ``mount`` of a part gets: see ``gr.HTML``. */
interface Part {
  element: HTMLElement;
  props: { value: string };
  watch: (name: string, fn: () => void) => void;
  trigger: (event: string) => void;
}

/** Events of the page: name → what is told (base/bus.js). */
interface PageEvents {
  /** The inspector is drawn for the first time. */
  inspector: Inspector;
  /** Another run is asked for: its id. */
  current: string;
  /** The list of runs has changed. */
  runs: RunRecord[];
  /** The server's model is loaded, or another one. */
  model: { state: string; text: string };
  /** The server was asked how it is; null: it did not answer. */
  status: Status | null;
  /** The page's session with the server begins: its name. */
  session: string;
  tab: string;
  /** Please open this run. */
  open: string;
  /** A run began: its id. */
  started: string;
  /** Please compare these runs: their ids. */
  lanes: string[];
  /** The server has put a prompt into the form: a recorded run's or an example's; "": the run's could not be read. */
  filled: "run" | "example" | "";
  /** Whether plain decoding runs beside the next run was changed. */
  compare: undefined;
  /** Please stop what runs. */
  stop: undefined;
  /** A run could not begin: the sentence. */
  refused: string;
  caution: { reason: string; note: string; lossy: string };
  /** What the lab has was changed. */
  lab: undefined;
}

/** The one global name, for tinkering in the browser's console and for tests: base/handle.js. */
declare var specviz: object | undefined;
